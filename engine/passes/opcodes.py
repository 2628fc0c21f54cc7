"""Sets of opcodes that passes ask about."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.device_operations import is_queue
from engine.ir.shape import FLOATS

ELEMENTWISE_UNARY = frozenset(
    (
        "abs negate sign exponential exponential-minus-one log log-plus-one logistic sqrt rsqrt cbrt "
        "tanh tan sine cosine erf ceil floor round-nearest-even round-nearest-afz is-finite not popcnt "
        "count-leading-zeros convert bitcast-convert real imag reduce-precision"
    ).split()
)
ELEMENTWISE_BINARY = frozenset(
    (
        "add subtract multiply divide remainder maximum minimum power atan2 compare complex "
        "and or xor shift-left shift-right-arithmetic shift-right-logical random-bits stochastic-convert"
    ).split()
)
ELEMENTWISE = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | {"select", "clamp"}
COMMUTATIVE = frozenset({"add", "multiply", "and", "or", "xor"})
SIDE_EFFECTS = frozenset({"infeed", "outfeed", "send", "send-done", "recv", "recv-done", "trace"})
"""Opcodes that always act on something outside the program."""
NO_STORAGE = frozenset(
    {
        "parameter",
        "constant",
        "iota",
        "broadcast",
        "reshape",
        "bitcast",
        "get-tuple-element",
        "tuple",
        "optimization-barrier",
    }
)
"""Opcodes whose results take no memory of their own: their consumers read the operands."""


def is_elementwise(instruction: Instruction) -> bool:
    """Whether each element of the result comes from the elements at the same place of all operands."""
    if instruction.opcode not in ELEMENTWISE:
        return False
    dimensions = instruction.array_shape.dimensions
    return all(operand.array_shape.dimensions == dimensions for operand in instruction.operands)


def is_commutative(instruction: Instruction) -> bool:
    """Whether its two operands may change places without changing a bit of the result."""
    if instruction.opcode == "compare":
        return instruction["direction"] in ("EQ", "NE")
    if instruction.opcode in ("maximum", "minimum"):
        # Of +0 and -0, which are equal, either may be taken.
        return instruction.array_shape.element_type not in FLOATS
    return instruction.opcode in COMMUTATIVE


def _acts_outside(instruction: Instruction) -> bool:
    if instruction.opcode in SIDE_EFFECTS or instruction.get("custom_call_has_side_effect", False):
        return True
    return is_queue(instruction)


def has_side_effect(instruction: Instruction) -> bool:
    """Whether an instruction does more than compute its result, by itself or in what it calls."""
    if not instruction.called:
        return _acts_outside(instruction)
    pending = [instruction]
    while pending:
        current = pending.pop()
        if _acts_outside(current):
            return True
        pending += [inner for computation in current.called for inner in computation.instructions]
    return False


def is_repeatable(instruction: Instruction) -> bool:
    """Whether running it twice on the same operands gives the same result and does nothing else."""
    pending = [instruction]
    while pending:
        current = pending.pop()
        if current.opcode in ("rng", "rng-get-and-update-state"):
            return False
        pending += [inner for computation in current.called for inner in computation.instructions]
    return not has_side_effect(instruction)
