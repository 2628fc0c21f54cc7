"""The style sheet of pages and notebooks. Its first rules define the colours."""

from __future__ import annotations

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"


def style_sheet() -> str:
    """The rules of report.css."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")
