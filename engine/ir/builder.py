"""Builds computations by hand: one method for each opcode whose shape follows from its operands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.ir.attributes import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    PaddingDimension,
    SliceDimension,
    Window,
)
from engine.ir.device_operations import HOST_FUNCTION, TOKEN
from engine.ir.module import Computation, Instruction, Module
from engine.ir.opcodes import inferred_shape
from engine.ir.shape import AnyShape, Shape, TupleShape

if TYPE_CHECKING:
    from engine.host_functions import HostFunction


class Builder:
    """Adds instructions one after the other; `build` returns the computation.

    >>> b = Builder("twice")
    >>> x = b.parameter("f32", (2, 3))
    >>> computation = b.build(b.add(x, x))
    """

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.instructions: list[Instruction] = []
        self._parameters = 0

    def instruction(
        self,
        opcode: str,
        shape: AnyShape,
        operands: Sequence[Instruction] = (),
        called: Sequence[Computation] = (),
        **attributes: Any,
    ) -> Instruction:
        """Adds an instruction of any opcode, with the shape of its result given."""
        name = f"{opcode}.{len(self.instructions)}"
        made = Instruction(name, opcode, shape, tuple(operands), attributes, tuple(called))
        self.instructions.append(made)
        return made

    def inferred(
        self,
        opcode: str,
        operands: Sequence[Instruction],
        called: Sequence[Computation] = (),
        hint: Shape | None = None,
        **attributes: Any,
    ) -> Instruction:
        """Adds an instruction whose shape follows from its operands; `hint` gives the rest (a type, say).

        Raises InternalError for operands and attributes that contradict each other, and for opcodes without a rule.
        """
        shape = operands[0].shape if hint is None else hint
        made = self.instruction(opcode, shape, operands, called, **attributes)
        made.shape = inferred_shape(made)
        return made

    def build(self, root: Instruction | None = None) -> Computation:
        """The computation of all instructions so far; its root is the last one unless another is given."""
        return Computation(self.name, list(self.instructions), self.instructions[-1] if root is None else root)

    def module(self, root: Instruction | None = None, aliases: dict[int, int] | None = None) -> Module:
        """The module whose entry is this computation."""
        return Module(self.name, self.build(root), dict(aliases or {}))

    # Sources

    def parameter(self, element_type: str, dimensions: Sequence[int] = ()) -> Instruction:
        return self.parameter_of(Shape(element_type, tuple(dimensions)))

    def parameter_of(self, shape: AnyShape) -> Instruction:
        """Adds the next parameter, an array or a tuple."""
        self._parameters += 1
        return self.instruction("parameter", shape, parameter_number=self._parameters - 1)

    def constant(self, value: Any, element_type: str = "f32") -> Instruction:
        literal = np.array(value, Shape(element_type).dtype)
        return self.instruction("constant", Shape(element_type, literal.shape), literal=literal)

    def splat(self, value: Any, dimensions: Sequence[int], element_type: str = "f32") -> Instruction:
        """A scalar constant, broadcast."""
        return self.broadcast(self.constant(value, element_type), dimensions, ())

    def iota(self, element_type: str, dimensions: Sequence[int], iota_dimension: int) -> Instruction:
        return self.instruction("iota", Shape(element_type, tuple(dimensions)), iota_dimension=iota_dimension)

    # Elementwise

    def elementwise(self, opcode: str, *operands: Instruction, **attributes: Any) -> Instruction:
        return self.inferred(opcode, operands, **attributes)

    def add(self, lhs: Instruction, rhs: Instruction) -> Instruction:
        return self.inferred("add", (lhs, rhs))

    def subtract(self, lhs: Instruction, rhs: Instruction) -> Instruction:
        return self.inferred("subtract", (lhs, rhs))

    def multiply(self, lhs: Instruction, rhs: Instruction) -> Instruction:
        return self.inferred("multiply", (lhs, rhs))

    def divide(self, lhs: Instruction, rhs: Instruction) -> Instruction:
        return self.inferred("divide", (lhs, rhs))

    def compare(self, lhs: Instruction, rhs: Instruction, direction: str) -> Instruction:
        return self.inferred("compare", (lhs, rhs), direction=direction)

    def select(self, predicate: Instruction, on_true: Instruction, on_false: Instruction) -> Instruction:
        return self.inferred("select", (predicate, on_true, on_false))

    def convert(self, operand: Instruction, element_type: str) -> Instruction:
        return self.inferred("convert", (operand,), hint=operand.array_shape.with_type(element_type))

    # Shapes

    def reshape(self, operand: Instruction, dimensions: Sequence[int]) -> Instruction:
        return self.inferred("reshape", (operand,), hint=operand.array_shape.with_dimensions(tuple(dimensions)))

    def transpose(self, operand: Instruction, permutation: Sequence[int]) -> Instruction:
        return self.inferred("transpose", (operand,), dimensions=tuple(permutation))

    def broadcast(self, operand: Instruction, dimensions: Sequence[int], mapping: Sequence[int]) -> Instruction:
        """A broadcast to `dimensions`; `mapping[i]` is the dimension of the result that operand dimension i becomes."""
        hint = operand.array_shape.with_dimensions(tuple(dimensions))
        return self.inferred("broadcast", (operand,), hint=hint, dimensions=tuple(mapping))

    def slice(self, operand: Instruction, *dimensions: tuple[int, ...]) -> Instruction:
        """A slice, each dimension as (start, limit) or (start, limit, stride)."""
        return self.inferred("slice", (operand,), slice_dimensions=tuple(SliceDimension(*d) for d in dimensions))

    def pad(self, operand: Instruction, value: Instruction, *dimensions: tuple[int, ...]) -> Instruction:
        """A pad with the scalar `value`, each dimension as (low, high) or (low, high, interior)."""
        return self.inferred("pad", (operand, value), padding_config=tuple(PaddingDimension(*d) for d in dimensions))

    def concatenate(self, operands: Sequence[Instruction], dimension: int) -> Instruction:
        return self.inferred("concatenate", operands, dimensions=(dimension,))

    def reverse(self, operand: Instruction, dimensions: Sequence[int]) -> Instruction:
        return self.inferred("reverse", (operand,), dimensions=tuple(dimensions))

    # Reductions and products

    def reduce(
        self, operand: Instruction, initial: Instruction, dimensions: Sequence[int], opcode: str = "add"
    ) -> Instruction:
        body = binary_computation(opcode, operand.array_shape.element_type)
        return self.inferred("reduce", (operand, initial), (body,), dimensions=tuple(dimensions))

    def reduce_window(
        self, operand: Instruction, initial: Instruction, window: Window, opcode: str = "add"
    ) -> Instruction:
        body = binary_computation(opcode, operand.array_shape.element_type)
        return self.inferred("reduce-window", (operand, initial), (body,), window=window)

    def dot(self, lhs: Instruction, rhs: Instruction, numbers: DotDimensionNumbers | None = None) -> Instruction:
        """A matrix product, or any other contraction its dimension numbers describe."""
        numbers = numbers or DotDimensionNumbers((1,), (0,))
        return self.inferred("dot", (lhs, rhs), dot_dimension_numbers=numbers)

    def convolution(
        self,
        lhs: Instruction,
        rhs: Instruction,
        window: Window,
        numbers: ConvolutionDimensionNumbers,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> Instruction:
        return self.inferred(
            "convolution",
            (lhs, rhs),
            window=window,
            convolution_dimension_numbers=numbers,
            feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )

    # Tuples and calls

    def tuple(self, *operands: Instruction) -> Instruction:
        return self.instruction("tuple", TupleShape(tuple(o.shape for o in operands)), operands)

    def get_tuple_element(self, operand: Instruction, index: int) -> Instruction:
        assert isinstance(operand.shape, TupleShape), operand.name
        return self.instruction("get-tuple-element", operand.shape.elements[index], (operand,), tuple_index=index)

    def elements(self, value: Instruction) -> list[Instruction]:
        """The elements of a tuple; an array alone."""
        if isinstance(value.shape, Shape):
            return [value]
        return [self.get_tuple_element(value, index) for index in range(len(value.shape.elements))]

    def call(self, computation: Computation, *operands: Instruction) -> Instruction:
        return self.instruction("call", computation.root.shape, operands, (computation,))

    def host_function(
        self,
        function: HostFunction,
        operands: Sequence[Instruction],
        results: Sequence[Shape],
        token: Instruction,
        *,
        side_effect: bool = True,
        **attributes: Any,
    ) -> Instruction:
        """A call of a function of the host in the order of tokens, s32[]: a tuple of its results and the next token."""
        return self.instruction(
            *("custom-call", TupleShape((*results, TOKEN)), [*operands, token]),
            custom_call_target=HOST_FUNCTION,
            backend_config=json.dumps({"function": function.key, "name": function.name}),
            custom_call_has_side_effect=side_effect,
            **attributes,
        )

    def conditional(
        self, predicate: Instruction, branches: Sequence[Computation], arguments: Sequence[Instruction]
    ) -> Instruction:
        """A conditional: branches for true and false of a pred, or one for each value of an s32 index."""
        return self.instruction("conditional", branches[0].root.shape, (predicate, *arguments), branches)


def binary_computation(opcode: str, element_type: str) -> Computation:
    """The scalar computation of a reduction by `opcode`."""
    b = Builder(opcode)
    x, y = b.parameter(element_type), b.parameter(element_type)
    return b.build(b.elementwise(opcode, x, y))
