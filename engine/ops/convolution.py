"""convolution: any strides, dilations, padding, window reversal, feature groups and batch groups."""

from __future__ import annotations

from math import prod

import numpy as np

from engine.ir import ConvolutionDimensionNumbers, Instruction, Window, WindowDimension
from engine.ir.structured_shape_rules import window_count
from engine.ops.contraction import accumulating
from engine.ops.registry import definition
from engine.ops.windows import padded_base, window_view


@definition("convolution")
def _convolution(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    n: ConvolutionDimensionNumbers = instruction["convolution_dimension_numbers"]
    window: Window = instruction["window"]
    lhs, rhs = (accumulating(x, instruction.array_shape.dtype) for x in operands)
    image = lhs.transpose([n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions])
    outputs, inputs = n.kernel_output_feature_dimension, n.kernel_input_feature_dimension
    kernel = rhs.transpose([outputs, inputs, *n.kernel_spatial_dimensions])
    reversed_dimensions = [2 + k for k, d in enumerate(window) if d.window_reversal]
    result = _grouped(
        image,
        np.flip(kernel, tuple(reversed_dimensions)),
        window,
        instruction.get("feature_group_count", 1),
        instruction.get("batch_group_count", 1),
    )
    position = [n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions]
    return result.transpose(np.argsort(position)).astype(instruction.array_shape.dtype)


def _grouped(
    image: np.ndarray, kernel: np.ndarray, window: Window, feature_groups: int, batch_groups: int
) -> np.ndarray:
    """[batch, in, space...] with [out, in / feature_groups, space...] to [batch / batch_groups, out, ...].

    Group g of the output features depends on group g of the input features, or of the batch.
    """
    patches = _patches(image, window)
    outputs, group_features = kernel.shape[:2]
    groups = feature_groups * batch_groups
    batch = image.shape[0] // batch_groups
    counts, sizes = patches.shape[2 : 2 + len(window)], patches.shape[2 + len(window) :]
    depth = prod([group_features, *sizes])
    split = patches.reshape(batch_groups, batch, feature_groups, group_features, *counts, *sizes)
    space = list(range(4, 4 + len(window)))
    inner = list(range(4 + len(window), split.ndim))
    rows = split.transpose([0, 2, 1, *space, 3, *inner]).reshape(groups, -1 if depth else 0, depth)
    columns = kernel.reshape(groups, outputs // groups, depth).transpose(0, 2, 1)
    positions = prod([batch, *counts])
    product = np.matmul(rows.reshape(groups, positions, depth), columns)
    shaped = product.reshape(groups, batch, *counts, outputs // groups)
    last = shaped.ndim - 1
    return shaped.transpose([1, 0, last, *range(2, last)]).reshape(batch, outputs, *counts)


def _patches(image: np.ndarray, window: Window) -> np.ndarray:
    """A view [batch, features, counts..., sizes...] of the zero-padded image."""
    whole = (WindowDimension(1), WindowDimension(1), *window)
    base = padded_base(image, np.zeros((), image.dtype), whole)
    counts = [window_count(n, d) for n, d in zip(image.shape, whole, strict=True)]
    view = window_view(base, counts, whole)
    spatial = len(window)
    return view.reshape(*counts, *view.shape[4 + spatial :])
