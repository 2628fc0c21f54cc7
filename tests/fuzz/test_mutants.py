"""Modules that were changed at random, on the engine and by the definitions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from engine.ir.builder import Builder
from engine.ir.printer import print_module
from tests.exploring import more_seeds, sample
from tests.fuzz import mutants
from tests.fuzz.mutants import ENDS, Mutant, check, check_by_xla, first_wrong
from tests.fuzz.rounding import spread_of

SEEDS, MORE_SEEDS = range(36), more_seeds(range(36, 240), 1200)


@pytest.mark.sample(2)
@pytest.mark.parametrize("start", SEEDS[::12])
def test_changed_modules_run_as_their_definitions_say(start: int) -> None:
    run(sample(range(start, start + 12), 6))


@pytest.mark.explore
@pytest.mark.parametrize("start", MORE_SEEDS[::12])
def test_more_changed_modules_run_as_their_definitions_say(start: int) -> None:
    run(range(start, start + 12))


def run(seeds: Iterable[int]) -> None:
    for seed in seeds:
        mutant = Mutant(seed)
        end = check(mutant)
        assert end in ENDS, f"{seed}: {end}\n{first_wrong(mutant)}"


def test_definitions_are_those_of_xla() -> None:
    ends = [check_by_xla(Mutant(seed)) for seed in sample(range(100, 112), 6)]
    assert not {*ends} - {*ENDS}, ends
    assert ends.count("same") >= len(ends) / 2


def test_a_seed_gives_the_same_module() -> None:
    one, other = Mutant(5), Mutant(5)
    assert print_module(one.module) == print_module(other.module)
    assert [a.tobytes() for a in one.arguments] == [a.tobytes() for a in other.arguments]


def test_wrong_results_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that allows for rounding must still see one wrong element."""
    run = mutants.on_engine
    monkeypatch.setattr(mutants, "on_engine", lambda *a, **options: [_changed(r) for r in run(*a, **options)])
    ends = [check(Mutant(seed)) for seed in sample(range(8), 4)]
    assert sum(end not in ENDS for end in ends) >= 3 / 4 * len(ends)


@pytest.mark.parametrize(("factor", "is_open"), [(1e6, True), (1.5, False)])
def test_products_that_may_overflow_leave_zero_times_infinity_open(factor: float, is_open: bool) -> None:
    """A product that begins with zero is NaN where partial products are infinite; otherwise it must be zero."""
    b = Builder()
    product = b.module(b.reduce(b.parameter("f32", (130,)), b.constant(0.0), (0,), "multiply"))
    x = np.full(130, factor, np.float32)
    spread = spread_of(product, [x], (np.zeros((), np.float32),), 8)
    assert np.isinf(spread[0]) == is_open


def _changed(result: np.ndarray) -> np.ndarray:
    """Returns a copy whose first element differs."""
    changed = np.array(result)
    flat = changed.reshape(-1)
    if flat.size:
        flat[0] = flat[0] == 0 if flat.dtype == bool or flat[0] != flat[0] else 3 if flat[0] < 2 else 1
    return changed
