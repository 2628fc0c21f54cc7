"""Choices among numbers and NaN as TensorFlow's kernels make them, where HLO's `maximum` would be NaN.

XLA traces pooling, its gradient and segments by `maximum`, `minimum` and GE, and its own code for the CPU gives a
number or NaN by the order of its instructions. TensorFlow's kernels compare with `<`, which is false for NaN.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from engine.ir import Computation, Instruction, Shape
from engine.ir.builder import Builder, binary_computation
from engine.ir.shape import FLOATS
from engine.ops.apply import single_operation

SEGMENTS = ("UnsortedSegmentMax", "UnsortedSegmentMin", "SegmentMax", "SegmentMin", "SegmentMaxV2", "SegmentMinV2")
DIRECTIONS = {"maximum": "GT", "minimum": "LT"}


def as_in_kernels(instruction: Instruction, op_type: str) -> list[Instruction]:
    """Instructions that choose as the kernel of TensorFlow's `op_type` does; the last one replaces `instruction`."""
    if instruction.opcode not in ("reduce-window", "select-and-scatter", "scatter"):
        return [instruction]
    kind, opcode = instruction.operands[0].array_shape.element_type, single_operation(instruction.called[0])
    if kind not in FLOATS:
        return [instruction]
    if op_type.startswith("MaxPool"):
        if instruction.opcode == "reduce-window" and opcode == "maximum":
            return _greatest_number(instruction, kind)
        if instruction.opcode == "select-and-scatter" and opcode == "compare":
            return [replace(instruction, called=(_unless_less(kind), instruction.called[1]))]
    if op_type in SEGMENTS and opcode in DIRECTIONS:
        return [replace(instruction, called=(_kept_if(DIRECTIONS[opcode], kind),))]
    return [instruction]


def _greatest_number(pool: Instruction, kind: str) -> list[Instruction]:
    """A kernel begins with the lowest number, which stays where a window has NaN and -infinity alone."""
    dtype = Shape(kind).dtype
    literal = np.asarray(ml_dtypes.finfo(dtype).min, dtype)
    lowest = Instruction(f"{pool.name}.lowest", "constant", Shape(kind), attributes={"literal": literal})
    called = (binary_computation("maximum-number", kind),)
    return [lowest, replace(pool, operands=(pool.operands[0], lowest), called=called)]


def _unless_less(kind: str) -> Computation:
    """The select of a pool's gradient: a position stays unless it is less than the next."""
    body = Builder("unless_less")
    kept, candidate = body.parameter(kind), body.parameter(kind)
    return body.build(body.elementwise("not", body.compare(kept, candidate, "LT")))


def _kept_if(direction: str, kind: str) -> Computation:
    """The combiner of segments: the old value stays where it compares so with an update, and is replaced otherwise."""
    body = Builder(f"kept_if_{direction}")
    old, new = body.parameter(kind), body.parameter(kind)
    return body.build(body.select(body.compare(old, new, direction), old, new))
