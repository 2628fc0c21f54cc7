"""Derivatives of activations that the forward pass stores, in place of the activation's input.

The forward pass has most of a derivative at hand: gelu's erfc, silu's logistic. A backward pass that reads the stored
derivative multiplies once, instead of reading the input and computing the derivative. As many arrays are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property

from engine.ir import Computation, Instruction, Shape
from engine.ir.opcodes import OPCODES
from engine.passes.fusible import is_elementwise, is_moving, is_unit_reshape, loops_of
from engine.passes.groups import ancestors, bits
from engine.passes.recomputed import MOST_COST, SMALL
from engine.passes.splats import splat_value

LEAST_FUNCTION_COST = 8
"""Least cost per element of an operation that is worth computing only once."""
MOST_INSTRUCTIONS = 1 << 16
"""Most instructions of a computation that is searched: masks of the instructions that precede each have n * n bits."""
MOST_OPERATIONS = 64
"""Most operations of a derivative."""


class ActivationDerivatives:
    """Finds products of a gradient and a derivative whose functions the forward pass computes, in one computation."""

    def __init__(self, computation: Computation) -> None:
        self.computation, self.users = computation, computation.users()
        self._is_followable = cache(lambda each: is_elementwise(each) or is_moving(each))
        # Whether an instruction and all of its readers are elementwise operations or data movement.
        self._is_computed_where_read = cache(lambda each: all(map(self._is_followable, (each, *self.users[each]))))
        # The positions of an array's users, as bits: all steps of a recurrence read some arrays.
        self._readers_of = cache(lambda array: sum(1 << self._position[user] for user in self.users[array]))

    @cached_property
    def _position(self) -> dict[Instruction, int]:
        return {instruction: k for k, instruction in enumerate(self.computation.instructions)}

    @cached_property
    def _above(self) -> list[int]:
        return ancestors(self.computation)

    def kept(self) -> set[Instruction]:
        """The derivatives that have the gradient's product as their only user."""
        found: set[Instruction] = set()
        for product in self.computation.instructions:
            if product.opcode == "multiply" and is_elementwise(product):
                pairs = (product.operands, product.operands[::-1])
                found.update(each for each, gradient in pairs if self._is_kept(each, gradient))
        return found

    def _is_kept(self, derivative: Instruction, gradient: Instruction) -> bool:
        if len(self.users[derivative]) != 1 or derivative is gradient or not is_elementwise(derivative):
            return False
        if is_unit_reshape(derivative) or loops_of(derivative) != loops_of(gradient):
            return False
        return not self.precedes(derivative, gradient) and self.is_derivative((derivative,), gradient)

    def is_derivative(self, factors: Iterable[Instruction], gradient: Instruction, only_bounded: bool = False) -> bool:
        """Whether an expression of `factors` is costly, and shares a function with the instructions that `gradient`
        depends on.

        Its inputs must precede the gradient, and have no readers after it besides the expression. With `only_bounded`
        its functions must have bounded values: f16 cannot hold all derivatives of other functions, times any gradient.
        """
        factors = tuple(factors)
        if len(self.computation.instructions) > MOST_INSTRUCTIONS:
            return False
        cost, shares = 0, False
        inside: set[Instruction] = set()
        read: set[Instruction] = set()
        stack = list(factors)
        while stack:
            current = stack.pop()
            if current in inside or current in read or splat_value(current) is not None:
                continue
            if not self._is_computed_where_read(current):
                read.add(current)
                continue
            inside.add(current)
            if only_bounded and OPCODES[current.opcode].cost >= LEAST_FUNCTION_COST and not _is_bounded(current):
                return False
            if not is_moving(current):
                cost += OPCODES[current.opcode].cost
                shares |= OPCODES[current.opcode].cost >= LEAST_FUNCTION_COST and self.precedes(current, gradient)
            if len(inside) > MOST_OPERATIONS:
                return False
            stack += current.operands
        if not shares or cost <= MOST_COST:
            return False
        between = inside.difference(factors)
        return all(self._ends_with(each, inside, gradient) for each in (*read, *between))

    def _ends_with(self, array: Instruction, inside: set[Instruction], gradient: Instruction) -> bool:
        """Whether an array is small, or has no reader in the backward pass but those inside a derivative.

        Biases are kept anyway: an optimizer that reads them, in the same computation or another, makes no difference.
        """
        if not isinstance(array.shape, Shape) or array is gradient:
            return False
        elements, most = array.shape.elements, gradient.array_shape.elements
        if elements * SMALL <= most or splat_value(array) is not None or (elements < most and _is_given(array)):
            return True
        if array not in inside and not self.precedes(array, gradient):
            return False
        later = self._readers_of(array) & ~self._above[self._position[gradient]]
        return later.bit_count() <= len(inside) and all(
            self.computation.instructions[at] in inside for at in bits(later)
        )

    def precedes(self, instruction: Instruction, later: Instruction) -> bool:
        """Whether a later instruction depends on an earlier one."""
        return bool(self._above[self._position[later]] >> self._position[instruction] & 1)


def _is_bounded(function: Instruction) -> bool:
    """Whether a function has small values for any input; an exponential only of a negated square, as in gelu."""
    if function.opcode != "exponential":
        return OPCODES[function.opcode].bounded
    (negated,) = function.operands
    if negated.opcode == "negate":
        return _is_square(negated.operands[0])
    if negated.opcode != "multiply":
        return False
    values = [splat_value(each) for each in negated.operands]
    return any(v is not None and v < 0 and _is_square(s) for v, s in zip(values, negated.operands[::-1], strict=True))


def _is_square(instruction: Instruction) -> bool:
    return instruction.opcode == "multiply" and instruction.operands[0] is instruction.operands[1]


def _is_given(array: Instruction) -> bool:
    """Whether an array is a parameter of the computation, or an element of one."""
    source = array.operands[0] if array.opcode == "get-tuple-element" else array
    return source.opcode == "parameter"
