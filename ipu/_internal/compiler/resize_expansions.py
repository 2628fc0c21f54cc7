"""Bilinear resizing and its gradient as two products with constant matrices, one for each side of the images.

XLA's kernel gathers a window of pixels for each pixel of the result, by an index each, and combines them by a product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import DotDimensionNumbers, Instruction, Shape

FEW_CHANNELS = 8
"""Channels below which neighbouring columns, not channels, fill the vectors of the product along rows."""
Add = Callable[..., Instruction]


def resized(add: Add, call: Instruction, corners: bool, centers: bool) -> None:
    """ResizeBilinear of [n, height, width, channels]; `corners` and `centers` are align_corners and
    half_pixel_centers."""
    images, result = call.operands[0].array_shape.dimensions, call.array_shape.dimensions
    matrices = [interpolation(a, b, corners, centers) for a, b in zip(images[1:3], result[1:3], strict=True)]
    _by_matrices(add, call, matrices)


def resized_gradient(add: Add, call: Instruction, corners: bool, centers: bool) -> None:
    """ResizeBilinearGrad: the gradient by the images from that by the result."""
    gradient, images = call.operands[0].array_shape.dimensions, call.array_shape.dimensions
    matrices = [interpolation(a, b, corners, centers).T for a, b in zip(images[1:3], gradient[1:3], strict=True)]
    _by_matrices(add, call, matrices)


def interpolation(size: int, count: int, corners: bool, centers: bool) -> np.ndarray:
    """The weights, float32 [count, size], of the elements of a side in each of `count` interpolated ones."""
    scale = np.float32((size - 1) / (count - 1) if corners and count > 1 else size / count)
    outputs = np.arange(count, dtype=np.float32)
    at = (outputs + np.float32(0.5)) * scale - np.float32(0.5) if centers else outputs * scale
    below = np.floor(at)
    share = at - below
    low = np.clip(below, 0, size - 1).astype(np.int64)
    high = np.clip(np.ceil(at), 0, size - 1).astype(np.int64)
    weights = np.zeros((count, size), np.float32)
    np.add.at(weights, (np.arange(count), low), 1 - share)
    np.add.at(weights, (np.arange(count), high), share)
    return weights


def _by_matrices(add: Add, call: Instruction, matrices: list[np.ndarray]) -> None:
    """The images multiplied by a matrix [new, old] along the height, then by one along the width."""
    given = call.operands[0]
    if given.array_shape.element_type != "f32":
        given = add("convert", given.array_shape.with_type("f32"), (given,))
    images, _, width, channels = given.array_shape.dimensions
    by_height, by_width = (add("constant", Shape("f32", m.shape), literal=np.ascontiguousarray(m)) for m in matrices)
    height, new_width = matrices[0].shape[0], matrices[1].shape[0]
    shape = Shape("f32", (height, images, width, channels))
    rows = add("dot", shape, (by_height, given), dot_dimension_numbers=DotDimensionNumbers((1,), (1,)))
    if channels < FEW_CHANNELS:
        shape, numbers = Shape("f32", (height, images, channels, new_width)), DotDimensionNumbers((2,), (1,))
        made = add("dot", shape, (rows, by_width), dot_dimension_numbers=numbers)
        order = (1, 0, 3, 2)
    else:
        shape, numbers = Shape("f32", (new_width, height, images, channels)), DotDimensionNumbers((1,), (2,))
        made = add("dot", shape, (by_width, rows), dot_dimension_numbers=numbers)
        order = (2, 1, 0, 3)
    result = add("transpose", call.array_shape.with_type("f32"), (made,), dimensions=order)
    if call.array_shape.element_type != "f32":
        add("convert", call.shape, (result,))
