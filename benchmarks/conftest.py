"""Collects what the benchmarks compare and prints it as one table at the end of the run."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.comparison import Comparison

COMPARISONS = pytest.StashKey[list[Comparison]]()


@pytest.fixture
def comparisons(request: pytest.FixtureRequest) -> list[Comparison]:
    """Where a benchmark puts its comparison to have it printed."""
    return request.config.stash.setdefault(COMPARISONS, [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    made = config.stash.get(COMPARISONS, [])
    if made:
        terminalreporter.section("software IPU and plain Keras, medians of interleaved rounds")
        for each in made:
            terminalreporter.write_line("")
            for line in each.lines():
                terminalreporter.write_line(line)
