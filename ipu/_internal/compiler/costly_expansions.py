"""The HLO of the operations of costly_kernels.py, as TensorFlow writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.ir import AnyShape, Computation, Instruction, Shape
from ipu._internal.compiler.costly_kernels import FACTORIZATIONS, RESIZING, TARGET
from ipu._internal.compiler.matrix_expansions import factorized
from ipu._internal.compiler.resize_expansions import resized, resized_gradient

UNARY = {
    "Abs": "abs",
    "Exp": "exponential",
    "IsFinite": "is-finite",
    "Rsqrt": "rsqrt",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}
NARROW = ("f16", "bf16")


class DynamicOperand(Exception):
    """An operand has a size that is known at run time only: the result has it, too, which a custom call cannot say."""


def is_costly(each: Instruction) -> bool:
    """Whether an instruction is a custom call in place of a costly operation."""
    return each.opcode == "custom-call" and each["custom_call_target"].startswith(TARGET)


def expanded(call: Instruction, is_dynamic: bool) -> list[Instruction]:
    """The instructions in place of a custom call, the last its result. Raises DynamicOperand if it `is_dynamic`."""
    if is_dynamic:
        raise DynamicOperand
    operation, *settings = call["custom_call_target"].removeprefix(TARGET).split(":")
    written = _Writer(call)
    if operation in UNARY:
        written.add(UNARY[operation], call.shape, call.operands)
    elif operation == "Erfc":
        written.in_f32("erfc")
    elif operation == "Relu":
        zero = written.zero(call.operands[0].array_shape)
        written.add("maximum", call.shape, (call.operands[0], zero))
    elif operation in RESIZING:
        write = resized if operation == "ResizeBilinear" else resized_gradient
        write(written.add, call, *(each == "1" for each in settings))
    elif operation in FACTORIZATIONS:
        factorized(written.add, call, operation, [each == "1" for each in settings])
    elif operation == "ReluGrad":
        gradients, features = call.operands
        zero = written.zero(features.array_shape)
        shape = Shape("pred", features.array_shape.dimensions)
        is_positive = written.add("compare", shape, (features, zero), direction="GT", comparison_type="FLOAT")
        written.add("select", call.shape, (is_positive, gradients, zero))
    else:
        written.sum_of_rows()
    return written.instructions


def in_order(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The instructions in XLA's order: operands before users, as late as possible, from the first operand on."""
    used = {operand for each in instructions for operand in each.operands}
    found: dict[Instruction, None] = {}
    waiting = [each for each in reversed(instructions) if each not in used]
    while waiting:
        missing = [each for each in waiting[-1].operands if each not in found]
        if missing:
            waiting += reversed(missing)
        else:
            found[waiting.pop()] = None
    return list(found)


class _Writer:
    """Adds instructions, with the scope of a call."""

    def __init__(self, call: Instruction) -> None:
        self.call = call
        self.instructions: list[Instruction] = []

    def add(
        self,
        opcode: str,
        shape: AnyShape,
        operands: tuple[Instruction, ...] = (),
        *called: Computation,
        **attributes: Any,
    ) -> Instruction:
        name = f"{self.call.name}.{len(self.instructions)}"
        made = Instruction(name, opcode, shape, operands, attributes, called, self.call.op_name)
        self.instructions.append(made)
        return made

    def zero(self, shape: Shape) -> Instruction:
        """Zeros of a shape."""
        scalar = Shape(shape.element_type)
        constant = self.add("constant", scalar, literal=np.zeros((), scalar.dtype))
        return self.add("broadcast", shape, (constant,), dimensions=()) if shape.rank else constant

    def in_f32(self, opcode: str) -> None:
        """An elementwise operation, of 16-bit floats in float32."""
        (given,), shape = self.call.operands, self.call.shape
        wide = given.array_shape.with_type("f32")
        if wide != shape:
            given = self.add("convert", wide, (given,))
        made = self.add(opcode, wide, (given,))
        if wide != shape:
            self.add("convert", shape, (made,))

    def sum_of_rows(self) -> None:
        """The sum over all dimensions but the last, of 16-bit floats in float32."""
        (given,), shape = self.call.operands, self.call.shape
        assert isinstance(shape, Shape)
        is_narrow = shape.element_type in NARROW
        sums = Shape("f32", shape.dimensions) if is_narrow else shape
        if is_narrow:
            given = self.add("convert", Shape("f32", given.array_shape.dimensions), (given,))
        scalar = Shape(sums.element_type)
        start = self.add("constant", scalar, literal=np.full((), -0.0, scalar.dtype))
        dimensions = tuple(range(len(given.array_shape.dimensions) - 1))
        total = self.add("reduce", sums, (given, start), _addition(self.call, scalar), dimensions=dimensions)
        if is_narrow:
            self.add("convert", shape, (total,))


def _addition(call: Instruction, scalar: Shape) -> Computation:
    a, b = (
        Instruction(f"{call.name}.{name}", "parameter", scalar, (), {"parameter_number": k}, op_name=call.op_name)
        for k, name in enumerate("ab")
    )
    total = Instruction(f"{call.name}.sum", "add", scalar, (a, b), op_name=call.op_name)
    return Computation(f"{call.name}.region", [a, b, total], total)
