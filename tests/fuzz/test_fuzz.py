"""Random programs on the engine, against XLA."""

from __future__ import annotations

import pytest

from tests.exploring import more_seeds
from tests.fuzz.generate import LEAST, generate
from tests.fuzz.oracle import check
from tests.fuzz.runs import RefusedByXLA
from tests.fuzz.shrink import report

SEEDS, MORE_SEEDS = range(24), more_seeds(range(24, 100), 50)


def run(seed: int) -> None:
    program = generate(seed)
    assert len(program.steps) >= LEAST
    try:
        check(program)
    except RefusedByXLA:
        # XLA cannot compile the program for a user either.
        return
    except Exception as failure:
        pytest.fail(report(program, failure), pytrace=False)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(seed: int) -> None:
    run(seed)


@pytest.mark.explore
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_random_programs(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_program() -> None:
    one, other = generate(3), generate(3)
    assert one.source() == other.source()
    assert all(one.inputs[name].tobytes() == other.inputs[name].tobytes() for name in one.inputs)
