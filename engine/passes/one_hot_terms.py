"""Terms of a sum that compare their index with a label, and their value at all other indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.opcodes import NAN_SPREADS
from engine.ops.registry import DEFINITIONS
from engine.passes.fusible import is_elementwise, is_unit_reshape
from engine.passes.rewriting import changed
from engine.passes.splats import splat_value

MOST_OPERATIONS = 64
MOST_CHOICES = 2
Known = np.ndarray | None


@dataclass(frozen=True, slots=True)
class OneHotTerms:
    """`root` is computed elementwise by the operations `inside`, operands first; `test` compares indices with `labels`.

    `choices` are broadcasts along the terms of a select between two constants for each row: in TensorFlow's cross
    entropy zero, or NaN for a label that does not exist.
    """

    root: Instruction
    inside: tuple[Instruction, ...]
    test: Instruction
    labels: Instruction
    choices: tuple[Instruction, ...]

    @classmethod
    def of(cls, root: Instruction) -> OneHotTerms | None:
        """Finds the terms of a sum; None unless they have exactly one comparison with labels."""
        inside = _inside(root)
        if inside is None:
            return None
        tests = [(each, labels) for each in inside if (labels := _labels(each)) is not None]
        operands = dict.fromkeys(operand for each in inside for operand in each.operands)
        choices = tuple(each for each in operands if _choice(each) is not None)
        if len(tests) != 1 or len(choices) > MOST_CHOICES:
            return None
        return cls(root, tuple(inside), *tests[0], choices)

    def are_zero_elsewhere(self) -> bool:
        """Whether every sum equals its term at the label: all other terms are zeros, or all terms are NaN."""
        for chosen in product(*(_choice(each) or () for each in self.choices)):
            known = dict(zip(self.choices, chosen, strict=True))
            other = self._value(known, np.bool_(False))
            if other is None:
                return False
            if np.isnan(other):
                same = self._value(known, np.bool_(True))
                if same is None or not np.isnan(same):
                    return False
            elif other != 0:
                return False
        return True

    def _value(self, choices: dict[Instruction, np.ndarray], matches: np.bool_) -> Known:
        """The root's value, as far as it follows from the comparison and the choices alone."""
        known: dict[Instruction, Known] = {**choices, self.test: np.asarray(matches)}
        for each in self.inside:
            if each is not self.test:
                known[each] = _result(each, [known[o] if o in known else splat_value(o) for o in each.operands])
        return known[self.root]


def _inside(root: Instruction) -> list[Instruction] | None:
    """The elementwise operations that compute an array, operands first; None for too many, or none."""
    found: dict[Instruction, None] = {}
    stack: list[tuple[Instruction, Iterator[Instruction]]] = [(root, iter(root.operands))]
    entered = {root}
    if not _is_inside(root):
        return None
    while stack:
        each, operands = stack[-1]
        following = next((o for o in operands if o not in entered and _is_inside(o)), None)
        if following is None:
            found[each] = None
            stack.pop()
        else:
            entered.add(following)
            stack.append((following, iter(following.operands)))
        if len(entered) > MOST_OPERATIONS:
            return None
    return list(found)


def _is_inside(instruction: Instruction) -> bool:
    return is_elementwise(instruction) and not is_unit_reshape(instruction)


def _labels(test: Instruction) -> Instruction | None:
    """The labels that a comparison finds among indices along the last dimension; None for other instructions."""
    if test.opcode != "compare" or test["direction"] != "EQ":
        return None
    last = test.array_shape.rank - 1
    for index, label in (test.operands, test.operands[::-1]):
        indices = index.opcode == "iota" and index["iota_dimension"] == last
        if indices and label.opcode == "broadcast" and label["dimensions"] == tuple(range(last)):
            return label.operands[0] if label.array_shape.element_type in ("s32", "s64") else None
    return None


def _choice(operand: Instruction) -> tuple[np.ndarray, np.ndarray] | None:
    """The two values of which each row of a broadcast has one; None if rows may have other values."""
    if operand.opcode != "broadcast" or operand.array_shape.rank - 1 in operand["dimensions"]:
        return None
    chosen = operand.operands[0]
    if chosen.opcode != "select":
        return None
    first, second = splat_value(chosen.operands[1]), splat_value(chosen.operands[2])
    return None if first is None or second is None else (first, second)


def _result(instruction: Instruction, operands: list[Known]) -> Known:
    opcode = instruction.opcode
    if opcode == "select" and operands[0] is not None:
        return operands[1 if operands[0] else 2]
    values = [each for each in operands if each is not None]
    if len(values) == len(operands):
        scalar = changed(instruction, shape=Shape(instruction.array_shape.element_type, ()))
        with np.errstate(all="ignore"):
            return np.asarray(DEFINITIONS[opcode](scalar, values))
    spreads = opcode in NAN_SPREADS and any(v.dtype == np.float32 and np.isnan(v) for v in values)
    return np.asarray(np.float32(np.nan)) if spreads else None
