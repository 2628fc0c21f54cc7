"""Operations that move elements without computing: broadcast, reshape, transpose, slice, pad, and the like."""

from __future__ import annotations

import numpy as np

from engine.errors import UnsupportedOperation
from engine.ir import Instruction, PaddingDimension
from engine.ops.registry import definition


@definition("reshape")
def _reshape(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return operands[0].reshape(instruction.array_shape.dimensions)


@definition("broadcast")
def _broadcast(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Broadcasts: dimension k of the operand becomes dimension `dimensions[k]` of the result, in any order."""
    (x,) = operands
    dimensions = instruction["dimensions"]
    result = instruction.array_shape.dimensions
    ordered = x.transpose(np.argsort(dimensions)) if dimensions else x
    aligned = [result[d] if d in dimensions else 1 for d in range(len(result))]
    return np.broadcast_to(ordered.reshape(aligned), result)


@definition("transpose")
def _transpose(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return operands[0].transpose(instruction["dimensions"])


@definition("slice")
def _slice(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return np.asarray(operands[0][tuple(slice(d.start, d.limit, d.stride) for d in instruction["slice_dimensions"])])


@definition("concatenate")
def _concatenate(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(operands, instruction["dimensions"][0])


@definition("reverse")
def _reverse(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return np.asarray(np.flip(operands[0], instruction["dimensions"]))


@definition("iota")
def _iota(instruction: Instruction, _: list[np.ndarray]) -> np.ndarray:
    shape, dimension = instruction.array_shape, instruction["iota_dimension"]
    numbers = np.arange(shape.dimensions[dimension]).astype(shape.dtype)
    aligned = [-1 if d == dimension else 1 for d in range(shape.rank)]
    return np.broadcast_to(numbers.reshape(aligned), shape.dimensions)


def padded(x: np.ndarray, value: np.ndarray, config: tuple[PaddingDimension, ...]) -> np.ndarray:
    """The array with interior gaps, then edges, filled with `value`; negative edge padding removes elements."""
    spans, kept = [], []
    dimensions = []
    for size, padding in zip(x.shape, config, strict=True):
        step = padding.interior_padding + 1
        spread = (size - 1) * step + 1 if size else 0
        length = spread + padding.edge_padding_low + padding.edge_padding_high
        position = padding.edge_padding_low + step * np.arange(size)
        inside = (position >= 0) & (position < length)
        dimensions.append(max(0, length))
        spans.append(position[inside])
        kept.append(np.flatnonzero(inside))
    result = np.full(dimensions, value, x.dtype)
    result[np.ix_(*spans)] = x[np.ix_(*kept)]
    return result


@definition("pad")
def _pad(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    x, value = operands
    return padded(x, value, instruction["padding_config"])


@definition("get-dimension-size")
def _get_dimension_size(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return np.asarray(operands[0].shape[instruction["dimensions"][0]], np.int32)


@definition("set-dimension-size")
def _set_dimension_size(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Accepts only the size that the dimension has; raises UnsupportedOperation for any other."""
    x, size = operands
    dimension = instruction["dimensions"][0]
    if int(size) != x.shape[dimension]:
        raise UnsupportedOperation(
            f"Expected dimension {dimension} of {instruction!r} to keep its size {x.shape[dimension]}. "
            f"Received: {int(size)}, known only at run time. Use a mask in place of a varying size."
        )
    return x
