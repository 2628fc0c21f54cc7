"""Bilinear interpolation of images, and its gradient, as a custom call: HLO has a gather of windows, or products.

Results are sums of few elements along each side, by weights that only depend on sizes.
"""

from __future__ import annotations

import numpy as np

from engine.errors import InternalError
from engine.ir.device_operations import config_of
from engine.ir.module import Instruction
from engine.ir.shape import Shape

INTERPOLATION = "ipu.interpolation"
"""(images [n, h, w, c]) -> images [n, *size, c], f32; config {"size": [height, width], "corners": whether corners are
aligned, "centers": whether pixels are at their centres, "gradient": true for the gradient by images of that size}."""
SETTINGS = {"size", "corners", "centers", "gradient"}


def interpolation_shape(instruction: Instruction) -> Shape:
    """The result's shape, given the operand's. Raises InternalError for other shapes or settings."""
    shapes, config = [each.array_shape for each in instruction.operands], config_of(instruction)
    flags = [config.get(each) for each in ("corners", "centers", "gradient")]
    size = config.get("size")
    sizes = isinstance(size, list) and len(size) == 2 and all(type(each) is int and each > 0 for each in size)
    if config.keys() != SETTINGS or not sizes or any(type(each) is not bool for each in flags) or all(flags[:2]):
        raise InternalError(f"Expected the settings {sorted(SETTINGS)} of an interpolation. Received: {config}.")
    if len(shapes) != 1 or shapes[0].rank != 4 or shapes[0].element_type != "f32" or not shapes[0].elements:
        raise InternalError(f"Expected images, f32[n, h, w, c]. Received: {shapes}.")
    images, _, _, channels = shapes[0].dimensions
    assert isinstance(size, list)
    return shapes[0].with_dimensions((images, *size, channels))


def interpolation_matrices(instruction: Instruction) -> tuple[np.ndarray, np.ndarray]:
    """Interpolation weights by rows and by columns: float32 [elements of the result, elements of the operand] along a
    side.
    """
    config, (operand,) = config_of(instruction), instruction.operands
    by_side = []
    for given, made in zip(operand.array_shape.dimensions[1:3], config["size"], strict=True):
        size, count = (made, given) if config["gradient"] else (given, made)
        weights = interpolation(size, count, config["corners"], config["centers"])
        by_side.append(weights.T if config["gradient"] else weights)
    return by_side[0], by_side[1]


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
