"""Winograd's convolutions read arrays as they are: copies between zeros are dropped unless it is too late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.host.passes.winograd import use_winograd
from engine.host.passes.winograd_padding import read_unpadded
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import ComputeSet, Program, Region, Span
from engine.program.work.copy import Copy
from tests.engine.running import check
from tests.program import test_winograd_gradient as gradients
from tests.program.test_winograd import convolution, made

SHAPE = (8, 32, 32, 32, 32)


def padded(lows: tuple[int, int], highs: tuple[int, int], slices: bool = False, images: int = 2) -> Module:
    """A convolution with that padding of rows and columns, on an array or a slice of its features."""
    b = Builder()
    window = tuple(
        WindowDimension(3, padding_low=low, padding_high=high) for low, high in zip(lows, highs, strict=True)
    )
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    x = b.parameter("f32", (images, 31, 29, 64 if slices else 32))
    if slices:
        x = b.slice(x, (0, images), (0, 31), (0, 29), (16, 48))
    return b.module(b.convolution(x, b.parameter("f32", (3, 3, 32, 32)), window, numbers))


def copies(program: Program) -> list[str]:
    """The names of copies of operands."""
    found = [each.name for each in program.compute_sets if isinstance(each.work, Copy)]
    return [name for name in found if not name.endswith(".layout")]


@pytest.mark.parametrize("images", [1, 8])
def test_copies_are_dropped(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    for module in (convolution(images, *SHAPE[1:]), gradients.gradient(images, 64, 64, 32, 16)):
        transformed = use_winograd(made(module))
        assert copies(transformed)
        assert not copies(read_unpadded(transformed))


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(
    ("lows", "highs", "slices"),
    [((1, 0), (0, 1), False), ((2, 0), (0, 0), False), ((0, 2), (1, 2), True), ((1, 1), (1, 1), True)],
)
def test_results_with_uneven_padding(
    lows: tuple[int, int], highs: tuple[int, int], slices: bool, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    module = padded(lows, highs, slices, images)
    assert not copies(read_unpadded(use_winograd(made(module))))
    check(module, tolerance=1e-4)


@pytest.mark.parametrize("outputs", [16, 48])
def test_gradients_of_one_image(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few output features have their gradients copied between zeros, too."""
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    module = gradients.gradient(1, 65, 63, 32, outputs)
    assert not copies(read_unpadded(use_winograd(made(module))))
    check(module, tolerance=1e-4)


def test_copies_of_what_changes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    program = use_winograd(made(convolution(*SHAPE)))
    at = next(at for at, each in enumerate(program.compute_sets) if isinstance(each.work, Copy))
    copy = program.compute_sets[at]
    overwriting = ComputeSet("update", copy.work, copy.units, [], [Span(copy.reads[0].buffer)])
    sets = [*program.compute_sets[: at + 1], overwriting, *program.compute_sets[at + 1 :]]
    assert copy.name in copies(read_unpadded(replace(program, compute_sets=sets)))
    # A copy that is made once before a loop reads what the loop may change.
    looped = replace(program, regions=[Region(at + 1, len(program.compute_sets), repeats=True)])
    assert copies(read_unpadded(looped)) == copies(program)
