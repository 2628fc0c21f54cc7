"""The debug executor has the bits of the fast one, for any number of tiles, and records its work."""

from __future__ import annotations

import numpy as np
import pytest

from engine.debug import DebugExecutable, debug_run
from engine.errors import ConfigurationError, InternalError
from engine.evaluate import evaluate
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.runtime.executable import Executable
from tests.debug.helpers import run_module, run_named, same_bits
from tests.engine.running import arguments_for, assert_near
from tests.lower.random_modules import LARGE, SHAPES, Maker
from tests.program.loops import LOOPS
from tests.program.programs import PROGRAMS, program_of


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits(name: str) -> None:
    expected = run_named(name, Executable(program_of(name)))
    for tiles in (1, 2, 7):
        assert same_bits(run_named(name, DebugExecutable(program_of(name), tiles=tiles)), expected), tiles


def test_a_tile_for_each_unit() -> None:
    program = program_of("training")
    most = max(each.units for each in program.compute_sets)
    executable = DebugExecutable(program, tiles=most)
    assert same_bits(run_named("training", executable), run_named("training", Executable(program_of("training"))))
    assert max(superstep.tiles for superstep in executable.record.supersteps) == most


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches(name: str) -> None:
    module = LOOPS[name]()
    arguments = arguments_for(module)
    ran = debug_run(module, arguments, tiles=3)
    with np.errstate(all="ignore"):
        expected = evaluate(module, arguments)
    for result, value in zip(ran.results, expected, strict=True):
        assert_near(result, value, 1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_random_modules_with_feeds(seed: int) -> None:
    module = Maker(seed, LARGE if seed % 2 else SHAPES).module(12)
    roles = ["feed" if p.array_shape.rank and k % 2 else "variable" for k, p in enumerate(module.entry.parameters)]

    def program() -> Program:
        from engine.compile import build_program

        return build_program(module, roles, {})

    expected = run_module(module, roles, Executable(program()))
    assert same_bits(run_module(module, roles, DebugExecutable(program())), expected)


def test_one_call_for_a_module() -> None:
    """Results as `evaluate` gives them, updated parameters among them; the arguments stay as they are."""
    b = Builder("descent")
    x, w = b.parameter("f32", (40, 30)), b.parameter("f32", (30, 50))
    updated = b.subtract(w, b.splat(1.0, (30, 50)))
    module = b.module(b.tuple(b.dot(x, w), updated), aliases={1: 1})
    arguments = arguments_for(module)
    kept = [argument.copy() for argument in arguments]
    ran = debug_run(module, arguments, tiles=2)
    for result, value in zip(ran.results, evaluate(module, arguments), strict=True):
        assert_near(result, value)
    assert all(np.array_equal(a, b) for a, b in zip(arguments, kept, strict=True))
    assert ran.record.steps == 1 and "dot" in ran.record.table()


def test_bad_arguments() -> None:
    b = Builder()
    b.elementwise("negate", b.parameter("f32", (3,)))
    module = b.module()
    with pytest.raises(InternalError, match=r"Expected arguments f32\[3\]. Received: float64\[3\]"):
        debug_run(module, [np.zeros(3)])
    with pytest.raises(ConfigurationError, match="Expected at least 1 tile. Received: 0"):
        debug_run(module, [np.zeros(3, np.float32)], tiles=0)
