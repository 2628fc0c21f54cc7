"""The floating-point exceptions of a nest: the operations that may raise them, and the words that count them."""

from __future__ import annotations

from enum import IntEnum

from engine.ir.opcodes import ASSOCIATIVE, QUIET
from engine.ir.shape import COMPLEX, FLOATS
from engine.program.nest import Nest, Operation

SUMMED = ASSOCIATIVE - QUIET
"""Sums and products: reductions that may give an infinity or NaN from finite values."""


def raises(operation: Operation) -> bool:
    """Whether an operation is checked for exceptions; operations on complex numbers are not."""
    if operation.opcode in QUIET or operation.element_type not in FLOATS:
        return False
    return not COMPLEX.intersection(operation.operand_types)


def is_limited(operation: Operation) -> bool:
    """Whether an operation converts to 16-bit floats with an overflow mode: an overflow need not give infinity."""
    return "overflow" in dict(operation.attributes)


class ExceptionWord(IntEnum):
    """Words in which machine code counts floating-point exceptions: one address, then counters in this order."""

    STOP = 0  # address of a word to which 1 is written to end the call; 0 if the call continues
    INVALID = 1
    DIVISION_BY_ZERO = 2
    OVERFLOW = 3
    WORDS = 4


class ExceptionCounters:
    """The int64 words in which a nest counts exceptions: three counters for each node, then for each reduction.

    A reduction has two more words: the numbers, from 1 on, of the last steps that read a NaN and an infinity.
    """

    STOP = ExceptionWord.STOP
    FIRST, COUNTERS = ExceptionWord.INVALID, ExceptionWord.WORDS - ExceptionWord.INVALID
    SEEN = 2

    @classmethod
    def of_node(cls, number: int) -> int:
        """The index of a node's first counter."""
        return cls.FIRST + cls.COUNTERS * number

    @classmethod
    def of_reduction(cls, nest: Nest, number: int) -> int:
        """The index of a reduction's first counter."""
        return cls.of_node(len(nest.nodes)) + (cls.COUNTERS + cls.SEEN) * number

    @classmethod
    def seen(cls, nest: Nest, number: int, kind: int) -> int:
        """The index of the step in which a reduction last read a NaN (kind 0) or infinity (1)."""
        return cls.of_reduction(nest, number) + cls.COUNTERS + kind

    @classmethod
    def words(cls, nest: Nest) -> int:
        """The number of words in a nest's record."""
        return cls.of_reduction(nest, len(nest.reductions))
