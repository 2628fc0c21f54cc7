"""Races of barriers measure how far apart the cores are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures import Figures
from benchmarks.round_trip import barrier_nanoseconds, description


@pytest.mark.parametrize(
    ("barriers", "kept", "warning"),
    [
        ([], [], ""),
        ([80.0, 100.0], [], ""),
        ([100.0, 80.0], [75.0, 270.0], ""),
        ([80.0, 120.0], [], "moved meanwhile"),
        ([270.0, 80.0], [80.0], "moved meanwhile"),
        ([270.0, 260.0], [80.0, 270.0], "further apart"),
        ([80.0, 80.0], [270.0], ""),
    ],
)
def test_warnings(barriers: list[float], kept: list[float], warning: str) -> None:
    line = description(barriers, kept)
    assert warning in line
    assert ("Warning" in line) == bool(warning)


def test_a_barrier_takes_time() -> None:
    assert barrier_nanoseconds(1) == 0
    assert barrier_nanoseconds(2) > 0


def test_records_without_barriers_are_read(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "kept.json", "one", {"races": {"old": {"day": "2026-01-01", "versions": {}}}})
    assert figures.barriers() == []
    figures.add("races", "new", {"barriers": [80.0, 90.0]})
    assert Figures.kept(tmp_path)[0].barriers() == [80.0, 90.0]
