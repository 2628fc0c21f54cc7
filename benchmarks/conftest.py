"""Collect the races and print them as tables at the end of the run."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from benchmarks.race import Race
from benchmarks.tables import table

RACES = pytest.StashKey[list[Race]]()


@pytest.fixture
def races(request: pytest.FixtureRequest) -> list[Race]:
    """The list of races that are printed at the end of the run; benchmarks append to it."""
    return request.config.stash.setdefault(RACES, [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    made = config.stash.get(RACES, [])
    if made:
        terminalreporter.section("software IPU and others, medians of interleaved rounds")
        console = Console(width=110)
        for each in made:
            console.print(table(each))
