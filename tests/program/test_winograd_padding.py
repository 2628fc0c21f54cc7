"""Winograd's convolutions read arrays as they are, without copies between zeros."""

from __future__ import annotations

import pytest

from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.work.copy import Copy
from tests.engine.running import check
from tests.program import test_winograd_gradient as gradients
from tests.program.test_winograd import convolution, is_transformed, made

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
def test_padding_is_not_copied(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    for module in (convolution(images, *SHAPE[1:]), gradients.gradient(images, 64, 64, 32, 16)):
        assert not copies(made(module))


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
    assert not copies(made(module))
    check(module, tolerance=1e-4)


def of_view(order: tuple[int, ...], reversed_dimensions: tuple[int, ...], images: int = 2) -> Module:
    """A convolution of an array whose dimensions are in this order, as a view of images, rows, columns, features."""
    b, sizes = Builder(), (images, 9, 14, 32)
    x = b.transpose(b.parameter("f32", tuple(sizes[k] for k in order)), tuple(map(order.index, range(4))))
    x = b.reverse(x, reversed_dimensions) if reversed_dimensions else x
    window = (WindowDimension(3, padding_low=1, padding_high=1),) * 2
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    return b.module(b.convolution(x, b.parameter("f32", (3, 3, 32, 32)), window, numbers))


@pytest.mark.parametrize(
    ("order", "reversed_dimensions"),
    [((0, 1, 2, 3), (2,)), ((0, 1, 2, 3), (1, 2)), ((0, 2, 1, 3), ()), ((2, 0, 1, 3), (2,)), ((2, 1, 0, 3), ())],
)
def test_rows_of_zeros_have_any_stride(
    order: tuple[int, ...], reversed_dimensions: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    module = of_view(order, reversed_dimensions)
    assert is_transformed(made(module))
    check(module, tolerance=1e-4)


def test_columns_far_apart_are_not_transformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of zeros with their stride would fill megabytes of scratch."""
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    near, far = (of_view((2, 0, 1, 3), (), images) for images in (56, 57))
    assert is_transformed(made(near))
    assert not is_transformed(made(far))


@pytest.mark.parametrize("outputs", [16, 48])
def test_gradients_of_one_image(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few output features have their gradients copied between zeros, too."""
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    module = gradients.gradient(1, 65, 63, 32, outputs)
    assert not copies(made(module))
    check(module, tolerance=1e-4)
