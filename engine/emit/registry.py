"""The table of elementwise operations: how each is written in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from engine.emit.lanes import Lanes


@dataclass(frozen=True, slots=True)
class Operation:
    """What an emitter needs to know: result and operand element types, and HLO's attributes as sorted pairs."""

    opcode: str
    element_type: str
    operand_types: tuple[str, ...]
    attributes: tuple[tuple[str, object], ...] = ()

    def __getitem__(self, name: str) -> object:
        return dict(self.attributes)[name]


Emitter = Callable[[Lanes, Operation, list[ir.Value]], ir.Value]
EMITTERS: dict[str, Emitter] = {}


def emitter(*opcodes: str) -> Callable[[Emitter], Emitter]:
    """Registers a function as the emitter of these opcodes."""

    def register(function: Emitter) -> Emitter:
        for opcode in opcodes:
            EMITTERS[opcode] = function
        return function

    return register


def emit_operation(lanes: Lanes, operation: Operation, operands: list[ir.Value]) -> ir.Value:
    """One elementwise operation, rounded to its element type."""
    value = EMITTERS[operation.opcode](lanes, operation, operands)
    return lanes.rounded(value, operation.element_type)
