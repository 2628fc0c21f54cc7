"""Sums of products with one gradient become the gradient times a sum: an activation's derivative.

Frameworks multiply a gradient through each path of an activation: gelu's x * erfc(x) has two. Written as a product, the
derivative does not depend on the gradient, and the forward pass can compute it. Its rounding differs, in the last bits.
A derivative of 16-bit floats is computed in f32 from values of the forward pass, and rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.ir import Computation, Instruction
from engine.passes import construct
from engine.passes.activation_derivatives import ActivationDerivatives
from engine.passes.fusible import is_elementwise
from engine.passes.rewriting import Visit, changed, for_each
from engine.passes.splats import splat_value

SUMS, LINEAR = ("add", "subtract"), ("add", "subtract", "multiply", "negate")
MOST_DEPTH = 12
"""Most operations on one path from a gradient to the sum."""
SMALLEST, LARGEST = 1e-30, 1e30
"""Bounds of the magnitude of products of constants that are merged."""
SMALLEST_HALF, LARGEST_HALF = 2.0**-6, 2.0**6
"""Bounds of these products in a stored derivative of 16-bit floats: f16 has few magnitudes."""
WIDE = "f32"
FLOATS = (WIDE, "f16", "bf16")
Users = dict[Instruction, list[Instruction]]


class Scaled(NamedTuple):
    """A number times an expression, or times 1."""

    number: float
    expression: Instruction | None


@for_each
def factored_derivatives(computation: Computation) -> Visit:
    """Factors gradients out of sums, where the other factor is a derivative that the forward pass may store.

    Derivatives are f32, or 16-bit floats.
    """
    derivatives = ActivationDerivatives(computation)

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if before.opcode not in SUMS or before not in derivatives.users:
            return None
        if before.array_shape.element_type not in FLOATS or not before.array_shape.rank:
            return None
        element_type = before.array_shape.element_type
        for gradient in _shared(before, before, derivatives.users, 0, {}):
            found = _Derivative(before, gradient, derivatives, widens=False)
            if found.value is None or not derivatives.is_derivative(found.factors, gradient, element_type == "f16"):
                continue
            if element_type != WIDE:
                found = _Derivative(before, gradient, derivatives, widens=True)
            assert found.value is not None
            return construct.elementwise(instruction, "multiply", gradient, found.stored(found.value))
        return None

    return visit


def _is_open(instruction: Instruction, root: Instruction, users: Users) -> bool:
    """Whether a sum or product is looked into: nothing else reads it."""
    return instruction is root or (instruction.opcode in LINEAR and len(users[instruction]) == 1)


def _shared(
    instruction: Instruction, root: Instruction, users: Users, depth: int, known: dict[Instruction, dict]
) -> dict[Instruction, None]:
    """The factors that all terms share; `known` holds those of visited instructions, which a user may read twice."""
    if splat_value(instruction) is not None:
        return {}
    if depth == MOST_DEPTH or not _is_open(instruction, root, users):
        return {instruction: None}
    if instruction not in known:
        found = [_shared(operand, root, users, depth + 1, known) for operand in instruction.operands]
        if instruction.opcode in SUMS:
            known[instruction] = {each: None for each in found[0] if each in found[1]}
        else:
            known[instruction] = {each: None for part in found for each in part}
    return known[instruction]


class _Derivative:
    """Divides a sum by a factor that all its terms have; the quotient's `value` is None if a term has it twice.

    With `widens`, 16-bit factors of a derivative, which are few, are computed in f32.
    """

    def __init__(
        self, root: Instruction, gradient: Instruction, derivatives: ActivationDerivatives, widens: bool
    ) -> None:
        self.root, self.gradient, self.derivatives, self.widens = root, gradient, derivatives, widens
        self._wide: dict[Instruction, Instruction] = {}
        self.shape = root.array_shape.with_type(WIDE)
        is_wide = self.shape == root.array_shape
        self.smallest, self.largest = (SMALLEST, LARGEST) if is_wide else (SMALLEST_HALF, LARGEST_HALF)
        self.factors: list[Instruction] = []
        self._remainders: dict[Instruction, Scaled | None] = {}
        self.value = self._without(root, 0)

    def _without(self, instruction: Instruction, depth: int) -> Scaled | None:
        """Divides a term by the factor. Each term is visited once, although its only user may read it twice."""
        if instruction not in self._remainders:
            self._remainders[instruction] = self._remainder(instruction, depth)
        return self._remainders[instruction]

    def _remainder(self, instruction: Instruction, depth: int) -> Scaled | None:
        if instruction is self.gradient:
            return Scaled(1.0, None)
        if depth == MOST_DEPTH or not _is_open(instruction, self.root, self.derivatives.users):
            return None
        operands = instruction.operands
        parts = [self._without(operand, depth + 1) for operand in operands]
        if instruction.opcode == "multiply":
            held = [part for part in parts if part is not None]
            return self._times(held[0], operands[parts[0] is not None]) if len(held) == 1 else None
        first, last = parts[0], parts[-1]
        if first is None or last is None:
            return None
        if instruction.opcode == "negate":
            return Scaled(-first.number, first.expression)
        return self._sum(instruction.opcode, first, last)

    def _times(self, part: Scaled, factor: Instruction) -> Scaled | None:
        value = splat_value(factor)
        if value is not None:
            number = part.number * float(value)
            return Scaled(number, part.expression) if self.smallest <= abs(number) <= self.largest else None
        self.factors.append(factor)
        factor = self._widened(factor) if self.widens else construct.convert(factor, factor, WIDE)
        if part.expression is None:
            return Scaled(part.number, factor)
        return Scaled(part.number, construct.elementwise(self.root, "multiply", part.expression, factor))

    def _sum(self, opcode: str, first: Scaled, second: Scaled) -> Scaled:
        if opcode == "subtract":
            second = Scaled(-second.number, second.expression)
        opcode = "subtract" if second.number < 0 else "add"
        terms = self.scaled(first), self.scaled(Scaled(abs(second.number), second.expression))
        return Scaled(1.0, construct.elementwise(self.root, opcode, *terms))

    def scaled(self, part: Scaled) -> Instruction:
        """The number times the expression."""
        if part.expression is not None and part.number == 1:
            return part.expression
        number = construct.splat_of(self.root, part.number, self.shape)
        if part.expression is None:
            return number
        return construct.elementwise(self.root, "multiply", part.expression, number)

    def stored(self, part: Scaled) -> Instruction:
        """The scaled part, converted to the type of the sum."""
        return construct.convert(self.root, self.scaled(part), self.root.array_shape.element_type)

    def _widened(self, factor: Instruction) -> Instruction:
        """Computes a factor in f32: neither it nor the values between it and the forward pass are rounded."""
        if factor not in self._wide:
            self._wide[factor] = self._in_f32(factor)
        return self._wide[factor]

    def _in_f32(self, factor: Instruction) -> Instruction:
        kind = factor.array_shape.element_type
        if kind == WIDE:
            return factor
        if factor.opcode == "convert" and factor.operands[0].array_shape.element_type == WIDE:
            return factor.operands[0]
        value = splat_value(factor)
        if value is not None:
            return construct.splat_of(self.root, value, factor.array_shape.with_type(WIDE))
        same = all(each.array_shape.element_type == kind for each in factor.operands)
        if not (same and is_elementwise(factor)) or self.derivatives.precedes(factor, self.gradient):
            return construct.convert(factor, factor, WIDE)
        return changed(
            factor, shape=factor.array_shape.with_type(WIDE), operands=[self._widened(each) for each in factor.operands]
        )
