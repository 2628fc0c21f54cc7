"""Computes equal values once: instructions with equal opcode, shape, attributes, operands and calls."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from engine.ir import Computation, Instruction, Module
from engine.ir.properties import is_commutative, is_repeatable
from engine.passes.rewriting import Visit, changed, rewrite_each

HINTS = frozenset({"frontend_attributes"})
"""Attributes that do not affect the result."""


def common_subexpressions(module: Module) -> Module:
    """Keeps the first of equal instructions. Random numbers and instructions with side effects are never merged."""
    computations = EqualComputations()
    return rewrite_each(module, lambda _: _visit_for(computations))


def _visit_for(computations: EqualComputations) -> Visit:
    seen: dict[Hashable, Instruction] = {}

    def visit(_: Instruction, instruction: Instruction) -> Instruction | None:
        if instruction.opcode == "parameter" or not is_repeatable(instruction):
            return None
        called = tuple([computations.representative(callee) for callee in instruction.called])
        if called != instruction.called:
            return changed(instruction, called=called)
        key = (
            instruction.opcode,
            instruction.shape,
            _operands(instruction),
            called,
            attributes_key(instruction),
        )
        return None if (first := seen.setdefault(key, instruction)) is instruction else first

    return visit


def _operands(instruction: Instruction) -> tuple[Instruction, ...]:
    if len(instruction.operands) == 2 and is_commutative(instruction):
        return tuple(sorted(instruction.operands, key=id))
    return instruction.operands


def attributes_key(instruction: Instruction) -> Hashable:
    """A value that is equal for equal attributes; literals are compared by their bits."""
    return tuple(
        [(name, _frozen(value)) for name, value in sorted(instruction.attributes.items()) if name not in HINTS]
    )


def _frozen(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple([_frozen(item) for item in value])
    return value


class EqualComputations:
    """A table of computations with one representative for all of equal structure, whatever names instructions have."""

    def __init__(self) -> None:
        self._by_structure: dict[Hashable, Computation] = {}
        self._representatives: dict[Computation, Computation] = {}

    def representative(self, computation: Computation) -> Computation:
        if computation not in self._representatives:
            first = self._by_structure.setdefault(self._structure(computation), computation)
            self._representatives[computation] = first
        return self._representatives[computation]

    def _structure(self, computation: Computation) -> Hashable:
        position = {instruction: n for n, instruction in enumerate(computation.instructions)}
        lines = tuple(
            (
                i.opcode,
                i.shape,
                tuple(position[operand] for operand in i.operands),
                tuple(id(self.representative(callee)) for callee in i.called),
                attributes_key(i),
            )
            for i in computation.instructions
        )
        return lines, position[computation.root]
