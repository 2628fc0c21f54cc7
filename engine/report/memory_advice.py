"""Advice on a program that does not fit: the changes that suffice, alone or together, or that none do."""

from __future__ import annotations

from typing import Any

from engine.report.numbers import count


def remedy(data: dict[str, Any]) -> str:
    """Sentences that propose the changes that make a program fit, or say that none do."""
    if data["pipeline"] is not None:
        return "model.plan_pipeline() proposes stages that fit, or says that none do."
    enough = [each for each in data["memory"]["levers"] if each["fits"]]
    if not enough:
        return "Nothing that was estimated makes it fit, alone or together; a smaller model would."
    if enough[0]["alone"]:
        each = "; ".join(f"{lever['what']} ({count(lever['saves_bytes'])} bytes less)" for lever in enough)
        return f"Each of these alone makes it fit: {each}."
    lever = enough[0]
    return (
        f"No change alone makes it fit. Together these do: {lever['what']} ({count(lever['saves_bytes'])} bytes less)."
    )
