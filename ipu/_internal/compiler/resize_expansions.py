"""Bilinear resizing and its gradient: the engine's interpolation, or two products with constant matrices.

XLA's kernel gathers a window of pixels for each pixel of the result, by an index each, and combines them by a product.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from engine.ir import DotDimensionNumbers, Instruction, Shape
from engine.ir.interpolation import INTERPOLATION, interpolation

FEW_CHANNELS = 3
"""Channels below which products are faster: neighbouring columns, not channels, fill the vectors of the second one.
One channel of 8 x 64 x 64 to 128 x 128 takes 0.67 of the time of interpolations, three take 1.2."""
Add = Callable[..., Instruction]


def resized(add: Add, call: Instruction, corners: bool, centers: bool) -> None:
    """ResizeBilinear of [n, height, width, channels]; `corners` and `centers` are align_corners and
    half_pixel_centers."""
    _resized(add, call, corners, centers, False)


def resized_gradient(add: Add, call: Instruction, corners: bool, centers: bool) -> None:
    """ResizeBilinearGrad: the gradient by the images from that by the result."""
    _resized(add, call, corners, centers, True)


def _resized(add: Add, call: Instruction, corners: bool, centers: bool, gradient: bool) -> None:
    """Adds the instructions, in float32, in place of a call."""
    given, shape = call.operands[0], call.array_shape.with_type("f32")
    if given.array_shape.element_type != "f32":
        given = add("convert", given.array_shape.with_type("f32"), (given,))
    if shape.dimensions[3] < FEW_CHANNELS:
        result = _by_matrices(add, given, shape, corners, centers, gradient)
    else:
        named = {"custom_call_target": INTERPOLATION, "custom_call_has_side_effect": False}
        config = {"size": list(shape.dimensions[1:3]), "corners": corners, "centers": centers, "gradient": gradient}
        result = add("custom-call", shape, (given,), **named, backend_config=json.dumps(config))
    if call.array_shape.element_type != "f32":
        add("convert", call.shape, (result,))


def _by_matrices(
    add: Add, given: Instruction, shape: Shape, corners: bool, centers: bool, gradient: bool
) -> Instruction:
    """The images multiplied by a matrix [new, old] along the height, then by one along the width."""
    matrices = []
    for old, new in zip(given.array_shape.dimensions[1:3], shape.dimensions[1:3], strict=True):
        made = interpolation(new, old, corners, centers).T if gradient else interpolation(old, new, corners, centers)
        matrices.append(np.ascontiguousarray(made))
    by_height, by_width = (add("constant", Shape("f32", each.shape), literal=each) for each in matrices)
    images, _, width, channels = given.array_shape.dimensions
    height, new_width = shape.dimensions[1:3]
    half = Shape("f32", (height, images, width, channels))
    rows = add("dot", half, (by_height, given), dot_dimension_numbers=DotDimensionNumbers((1,), (1,)))
    columns, numbers = Shape("f32", (height, images, channels, new_width)), DotDimensionNumbers((2,), (1,))
    product = add("dot", columns, (rows, by_width), dot_dimension_numbers=numbers)
    return add("transpose", shape, (product,), dimensions=(1, 0, 3, 2))
