"""Pooling without padded copies has the bits of loops over these, for any order of units; some cases keep loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.pooling.pool_windows import PooledImages
from engine.compile import build_program
from engine.host.passes import pooled_windows
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import Instruction, Module, Window, WindowDimension
from engine.ir.builder import Builder
from engine.ir.opcodes import neutral_element
from engine.ir.shape import NUMPY_TYPES
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.copy import Copy
from tests.program.machine import Machine

SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 2.0], np.float32)
SIDE = WindowDimension(3, 1, 1, 1)


def pooling(kind: str, shape: tuple[int, ...], window: Window, opcode: str, initial: float | None = None) -> Module:
    builder = Builder()
    start = builder.constant(neutral_element(opcode, kind) if initial is None else initial, kind)
    builder.reduce_window(builder.parameter(kind, shape), start, window, opcode)
    return builder.module()


def programs(module: Module) -> tuple[Program, Program]:
    """The program with loops, and the program for the host."""
    before = build_program(module, ["variable"], {}, verify=True)
    return before, run_passes(before, HOST_PASSES)


def pooled(program: Program) -> list[PooledImages]:
    found = (each.work.parameters for each in program.compute_sets if isinstance(each.work, CodeletWork))
    return [each for each in found if isinstance(each, PooledImages)]


def compare(kind: str, shape: tuple[int, ...], window: Window, opcode: str, values: np.ndarray = SPECIAL) -> None:
    """Compares the codelet's bits, except those of NaN, with loops, which other tests compare with the definition."""
    before, after = programs(pooling(kind, shape, window, opcode))
    assert len(pooled(after)) == 1 and not any(isinstance(each.work, Copy) for each in after.compute_sets)
    x = np.random.default_rng(1).choice(values, shape).astype(NUMPY_TYPES[kind])
    (expected,) = Machine(before, {0: x}).run(range)
    expected = np.where(np.isnan(expected), np.nan, expected).astype(expected.dtype)
    for order in (range, lambda units: reversed(range(units))):
        (found,) = Machine(after, {0: x}).run(order)
        assert np.where(np.isnan(found), np.nan, found).astype(found.dtype).tobytes() == expected.tobytes()


@pytest.mark.sample(12)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("opcode", ["add", "maximum", "maximum-number", "minimum"])
@pytest.mark.parametrize("shape", [(3, 9, 8, 5), (2, 2, 3, 16), (1, 5, 6, 37), (2, 2, 7, 6, 2, 3)])
@pytest.mark.parametrize(
    "side", [SIDE, WindowDimension(3, 2, 0, 1), WindowDimension(2, 2, 1, 1), WindowDimension(5, 1, 3, 4)]
)
def test_padded_windows(kind: str, opcode: str, shape: tuple[int, ...], side: WindowDimension) -> None:
    at = 1 if len(shape) == 4 else 2
    trivial = WindowDimension(1)
    window = (*[trivial] * at, side, replace(side, padding_low=0), *[trivial] * (len(shape) - at - 2))
    compare(kind, shape, window, opcode)


@pytest.mark.sample(16)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("opcode", ["add", "maximum", "maximum-number", "minimum"])
@pytest.mark.parametrize("seed", range(40))
def test_windows_of_few_channels_that_skip_columns(kind: str, opcode: str, seed: int) -> None:
    """Channels that fill no vector, or no whole number of them; one or two dimensions; columns that no window has."""
    rng = np.random.default_rng(seed)
    channels, count = int(rng.choice([*range(1, 20), 24, 35])), int(rng.integers(1, 3))
    sides = []
    for _ in range(count):
        size, low, high = (int(n) for n in rng.integers([2, 0, 0], [6, 2, 2]))
        sides.append(WindowDimension(size, int(rng.integers(2, size + 2)), low, high))
    sizes = [int(rng.integers(side.size, 4 * side.size)) for side in sides]
    trivial = WindowDimension(1)
    compare(kind, (3, *sizes, channels), (trivial, *sides, trivial), opcode)


@pytest.mark.parametrize("size", [16, 10])
def test_lines(size: int) -> None:
    """Windows of one dimension are one column apart."""
    trivial = WindowDimension(1)
    for kind in ("f32", "f16"):
        compare(kind, (5, 9, size), (trivial, SIDE, trivial), "maximum")
        compare(kind, (5, 9, 3, size), (trivial, SIDE, trivial, trivial), "add")


def test_windows_of_one_long_line_are_left_to_loops() -> None:
    """Units are rows of windows, of which there is one."""
    window = (WindowDimension(1), WindowDimension(2, 2), WindowDimension(1))
    assert not pooled(programs(pooling("f32", (1, 1 << 16, 8), window, "maximum"))[1])


def test_pooling_is_chained_with_the_quotient_of_its_sums() -> None:
    builder, window = Builder(), (WindowDimension(1), *[WindowDimension(3, 2)] * 2, WindowDimension(1))
    x = builder.parameter("f32", (64, 17, 17, 24))
    sums = builder.reduce_window(x, builder.constant(0.0), window, "add")
    builder.multiply(sums, builder.broadcast(builder.constant(1 / 9), sums.array_shape.dimensions, ()))
    before, after = programs(builder.module())
    assert len(after.compute_sets) == 1 and len(before.compute_sets) == 2
    values = np.random.default_rng(1).normal(size=(64, 17, 17, 24)).astype(np.float32)
    (expected,), (found,) = (Machine(program, {0: values}).run(range) for program in (before, after))
    np.testing.assert_array_equal(found, expected)


def test_many_units() -> None:
    """Units of several rows, which end within images."""
    ordinary = np.linspace(-1, 1, 64, dtype=np.float32)
    compare("f32", (5, 23, 16, 24), (WindowDimension(1), SIDE, SIDE, WindowDimension(1)), "add", ordinary)


def test_windows_without_padding() -> None:
    side, trivial = WindowDimension(3, 2), WindowDimension(1)
    compare("f32", (2, 9, 7, 16), (trivial, side, side, trivial), "maximum")


VIEWS: dict[str, Callable[[Builder, Instruction], Instruction]] = {
    "channels": lambda builder, x: builder.slice(x, (0, 2), (0, 8), (0, 8), (1, 7)),
    "every second column": lambda builder, x: builder.slice(
        x, (0, 2), (0, 8), (0, 8, 2), (0, x.array_shape.dimensions[3])
    ),
    "reversed": lambda builder, x: builder.reverse(x, (2,)),
    "transposed": lambda builder, x: builder.transpose(x, (0, 2, 1, 3)),
    "rows": lambda builder, x: builder.slice(x, (0, 2), (1, 8), (0, 8), (0, x.array_shape.dimensions[3])),
}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [16, 10])
@pytest.mark.parametrize("view", VIEWS)
def test_windows_over_views(view: str, channels: int, stride: int) -> None:
    """Columns of a view may be further apart than in a padded copy, or go backwards."""
    builder, side = Builder(), replace(SIDE, stride=stride)
    x = VIEWS[view](builder, builder.parameter("f32", (2, 8, 8, channels)))
    window = (WindowDimension(1), side, side, WindowDimension(1))
    builder.reduce_window(x, builder.constant(neutral_element("maximum", "f32"), "f32"), window, "maximum")
    before, after = programs(builder.module())
    assert len(pooled(after)) == 1
    values = np.random.default_rng(1).normal(size=(2, 8, 8, channels)).astype(np.float32)
    (expected,), (found,) = (Machine(program, {0: values}).run(range) for program in (before, after))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "window",
    [
        (SIDE, WindowDimension(1), WindowDimension(1), WindowDimension(1)),
        (WindowDimension(1), SIDE, replace(SIDE, window_dilation=2), WindowDimension(1)),
        (WindowDimension(1), SIDE, WindowDimension(9, 1, 4, 4), WindowDimension(1)),
        (SIDE, WindowDimension(1), SIDE, WindowDimension(1)),
    ],
    ids=["first dimension", "dilated", "wide", "apart"],
)
def test_other_windows_are_left_to_loops(window: Window) -> None:
    assert not pooled(programs(pooling("f32", (5, 9, 9, 16), window, "maximum"))[1])


def test_an_initial_value_that_counts_and_doubles_are_left_to_loops() -> None:
    window = (WindowDimension(1), SIDE, SIDE, WindowDimension(1))
    assert not pooled(programs(pooling("f32", (2, 6, 6, 16), window, "add", 1.0))[1])
    assert not pooled(programs(pooling("f64", (2, 6, 6, 16), window, "add"))[1])
    assert pooled_windows.pool_unpadded in HOST_PASSES
