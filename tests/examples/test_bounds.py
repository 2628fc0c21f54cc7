"""Bounds of steps count the multiply-adds that run, and the page states the gain that they leave."""

from __future__ import annotations

import pytest

from benchmarks.bounds import run_multiply_adds
from benchmarks.page import most, races
from engine.compile import build_program
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.run_passes import run_passes


def run(module: Module) -> int:
    """The multiply-adds of all compute sets as the host runs them."""
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    return sum(run_multiply_adds(each) for each in run_passes(program, HOST_PASSES).compute_sets)


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
