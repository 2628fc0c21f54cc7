"""`python -m tests` runs every test once."""

from __future__ import annotations

from pathlib import Path

from tests.__main__ import groups


def test_each_file_is_in_one_group() -> None:
    here = Path(__file__).parent
    found = [
        file for group in groups() for path in group for file in ([path] if path.is_file() else path.rglob("test_*.py"))
    ]
    assert sorted(found) == sorted(here.rglob("test_*.py"))
