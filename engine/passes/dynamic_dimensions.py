"""Makes dimensions whose size is known only at run time static: the size becomes a scalar beside the array.

XLA gives such an array its bound as its shape, and `set-dimension-size` says how much of it is valid (tf.where,
boolean_mask and slices of computed size end in one). Here the whole array is computed; elements beyond the size are
arbitrary, and rules keep them from affecting valid ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from engine.errors import UnsupportedOperation
from engine.ir import AnyShape, Computation, Instruction, Module, Shape
from engine.ir.opcodes import registering
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import Callees, Names, changed, make, with_computations

Sizes = dict[int, Instruction]
"""The sizes of an array's dynamic dimensions (or of those of all arrays of a tuple), s32 scalars."""


def resolve_dynamic_dimensions(module: Module) -> Module:
    """The module without set-dimension-size; the same one if it has none.

    Raises UnsupportedOperation where an operation has no rule for a dynamic dimension.
    """
    if not any(i.opcode == "set-dimension-size" for i in module.instructions()):
        return module
    return with_computations(inline_calls(module), lambda computation, new: Resolver(computation, new).run())


class Resolver:
    """Rewrites one computation from the first instruction to the last."""

    def __init__(self, computation: Computation, computations: Callees) -> None:
        self.computation, self.computations = computation, computations
        self.names = Names(computation.instructions)
        self.instructions: list[Instruction] = []
        self.sizes: dict[Instruction, Sizes] = {}
        self.like = computation.root

    def run(self) -> Computation:
        new: dict[Instruction, Instruction] = {}
        for before in self.computation.instructions:
            called = tuple(self.computations[callee] for callee in before.called)
            instruction = changed(before, operands=[new[operand] for operand in before.operands], called=called)
            new[before] = self.resolve(before, instruction)
        root = new[self.computation.root]
        if self.sizes.get(root):
            raise refused(root, next(iter(self.sizes[root])))
        return Computation(self.computation.name, self.instructions, root)

    def resolve(self, before: Instruction, instruction: Instruction) -> Instruction:
        """Records the sizes of an instruction that has new operands, and returns its replacement."""
        self.like = instruction
        if not any(self.sizes.get(operand) for operand in instruction.operands):
            if instruction.opcode != "set-dimension-size":
                return self.keep(before, instruction)
        rule = RULES.get(instruction.opcode)
        if rule is None:
            operand = next(operand for operand in instruction.operands if self.sizes.get(operand))
            raise refused(instruction, next(iter(self.sizes[operand])))
        result, sizes = rule(self, instruction)
        kept = self.keep(before, result) if result is instruction else result
        # No element is beyond the size of an empty dimension, or of one whose size is its bound.
        bounds = kept.tuple_shapes[0].dimensions
        self.sizes[kept] = {d: size for d, size in sizes.items() if not _is_full(bounds[d], size)}
        return kept

    def keep(self, before: Instruction, instruction: Instruction) -> Instruction:
        kept = self.names.settle(instruction, before)
        self.instructions.append(kept)
        return kept

    def sizes_of(self, *operands: Instruction) -> Sizes:
        """The sizes of arrays of one shape, merged: XLA has equal sizes wherever several are dynamic."""
        return {d: size for operand in operands for d, size in self.sizes.get(operand, {}).items()}

    def make(self, opcode: str, shape: AnyShape, *operands: Instruction, **attributes: Any) -> Instruction:
        """A new instruction in place of the one being resolved."""
        return self.added(make(self.like, opcode, shape, operands, **attributes))

    def with_operands(
        self, instruction: Instruction, operands: Iterable[Instruction], **attributes: Any
    ) -> Instruction:
        """A copy of an instruction with other operands."""
        return self.added(changed(instruction, operands=operands, **attributes))

    def added(self, made: Instruction) -> Instruction:
        """A new instruction, renamed where its name is taken."""
        return self.keep(made, made)

    def number(self, value: int, element_type: str = "s32") -> Instruction:
        shape = Shape(element_type)
        return self.make("constant", shape, literal=np.array(value, shape.dtype))

    def spread(self, scalar: Instruction, dimensions: Sequence[int]) -> Instruction:
        shape = scalar.array_shape.with_dimensions(tuple(dimensions))
        return self.make("broadcast", shape, scalar, dimensions=())

    def masked(self, operand: Instruction, sizes: Sizes, fill: Instruction) -> Instruction:
        """The operand with the scalar `fill` in place of all elements beyond the sizes."""
        dimensions = operand.array_shape.dimensions
        for dimension, size in sizes.items():
            indices = self.make("iota", Shape("s32", dimensions), iota_dimension=dimension)
            limit = self.spread(size, dimensions)
            counts = self.make("compare", Shape("pred", dimensions), indices, limit, direction="LT")
            operand = self.make("select", operand.shape, counts, operand, self.spread(fill, dimensions))
        return operand


Rule = Callable[[Resolver, Instruction], tuple[Instruction, Sizes]]
"""Returns the replacement of an instruction, itself or one built by `make`, and its sizes."""
RULES: dict[str, Rule] = {}
on = registering(RULES)


def refused(instruction: Instruction, dimension: int) -> UnsupportedOperation:
    """The error for an instruction that would need the size of an operand's dimension to be static."""
    origin = f" from {instruction.op_name}" if instruction.op_name else ""
    return UnsupportedOperation(
        f"Expected static shapes, or a dynamic size only in elementwise operations, reductions, sorts, gathers and "
        f"scatters. Received: {instruction.shape} in {instruction.opcode} %{instruction.name}{origin}, with dimension "
        f"{dimension} of a size known only at run time. Use operations whose result has a fixed shape: a mask in "
        f"place of boolean_mask, where or unique, tf.slice with a fixed size, and dense in place of sparse gradients."
    )


def _is_full(bound: int, size: Instruction) -> bool:
    return bound == 0 or (size.opcode == "constant" and int(size["literal"]) == bound)
