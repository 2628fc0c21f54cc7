"""Bounds of steps count the operations that run, and the page states the gain that multiply-adds leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.arithmetic import run_multiply_adds, run_operations, transform_operations
from benchmarks.page import most, races
from engine.codelets.convolutions.cook_toom import LARGE
from engine.compile import build_program
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import ComputeSet
from engine.program.run_passes import run_passes


def run(module: Module, count: Callable[[ComputeSet], int] = run_multiply_adds) -> int:
    """The multiply-adds, or what else `count` counts, of all compute sets as the host runs them."""
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    return sum(count(each) for each in run_passes(program, HOST_PASSES).compute_sets)


def convolution(taps: int, rows: int, columns: int) -> Module:
    b = Builder()
    window = WindowDimension(taps, padding_low=taps // 2, padding_high=taps // 2)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    x, kernel = b.parameter("f32", (8, rows, columns, 32)), b.parameter("f32", (taps, taps, 32, 48))
    return b.module(b.convolution(x, kernel, (window, window), numbers))


def test_a_product_has_its_size() -> None:
    b = Builder()
    x, y = b.parameter("f32", (24, 40)), b.parameter("f32", (40, 56))
    assert run(b.module(b.dot(x, y, DotDimensionNumbers((1,), (0,))))) == 24 * 40 * 56


@pytest.mark.parametrize(
    ("setting", "taps", "expected"),
    [
        ("0", 3, 30 * 33 * 9),
        ("2", 3, 15 * 17 * 16),
        ("4", 3, 8 * 9 * 36),
        ("4", 5, 10 * 11 * 49),  # tiles of 3 x 3 outputs, and their transforms
    ],
)
def test_transformed_convolutions_have_fewer(
    setting: str, taps: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", setting)
    assert run(convolution(taps, 30, 33)) == expected * 8 * 32 * 48


def test_transforms_count_as_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "4")
    tiles, module = 8 * 8 * 9, convolution(3, 30, 33)
    # Of six rows and six columns of a tile, each transformed by 12 operations; products by 12 along six and four.
    assert (transform_operations("inputs", LARGE), transform_operations("products", LARGE)) == (144, 120)
    assert run(module, run_operations) - run(module) == tiles * (32 * 144 + 48 * 120)


def test_operations_of_loops_are_those_of_their_code() -> None:
    b = Builder()
    x, y, z = (b.parameter("f32", (24, 40)) for _ in range(3))
    assert run(b.module(b.add(b.multiply(x, y), z)), run_operations) == 2 * 24 * 40
    assert run(b.module(b.elementwise("maximum", x, y)), run_operations) == 0
    power = run(b.module(b.elementwise("exponential", x)), run_operations)
    assert power > 8 * 24 * 40
    # The code of erfc has the same exponential.
    erfc = b.elementwise("erfc", x)
    both = b.add(erfc, b.elementwise("exponential", b.elementwise("negate", b.multiply(x, x))))
    assert run(b.module(both), run_operations) == run(b.module(erfc), run_operations) + 24 * 40


def test_the_page_has_what_is_left_to_gain() -> None:
    bounds = {"mlp": {"gflop": 0.2, "peak": 250.0}}
    assert most(2.0, bounds["mlp"]) == "2.5"
    assert most(None, bounds["mlp"]) == most(2.0, None) == ""
    ways = {"ipu": {"step": 1.0}, "keras": {"step": 2.0}}
    measured = {name: {"ways": ways} for name in ("mlp", "lenet")}
    head, _, mlp, lenet = races(measured, bounds).splitlines()
    assert head.split(" | ")[5] == "at most"
    assert mlp.split(" | ")[5] == "2.5" and lenet.split(" | ")[5] == ""
    assert "at most" not in races(measured, {})
