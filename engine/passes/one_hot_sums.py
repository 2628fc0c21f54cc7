"""A pass that replaces a sum along a large dimension by the one term that a label selects.

The loss of sparse cross entropy sums a one-hot vector times the logarithms of probabilities over the vocabulary.

Terms of a sum that compare their index with a label, and their value at all other indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.affine import Affine, linear, loop_index, pull
from engine.ir.module import topological
from engine.ir.opcodes import NAN_SPREADS
from engine.ops.apply import single_operation
from engine.ops.registry import DEFINITIONS
from engine.passes.construct import broadcast, elementwise, reshape, splat_of, take
from engine.passes.fusible import is_elementwise, is_moving, is_scalar_constant, is_unit_reshape
from engine.passes.rewriting import changed, make, on_each
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
    if not _is_inside(root):
        return None
    inside = [each for each in topological([root], _is_inside) if _is_inside(each)]
    return inside if len(inside) <= MOST_OPERATIONS else None


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


MOST_ELEMENTS = 1 << 31
"""The least number of elements of an array whose positions do not fit in s32."""
MOST_STEPS = 16
"""The largest number of arrays through which elements are followed."""


def _before(moving: Instruction, at: Instruction) -> Instruction:
    """Positions in the operand of a moving instruction, given those in its result."""
    dimensions, operand = moving.array_shape.dimensions, moving.operands[0].array_shape
    rank = len(dimensions)
    indices = pull(moving, tuple(loop_index(d, rank) for d in range(rank)), rank)
    assert indices is not None
    affine: Affine = linear(operand, indices, rank)
    total, left = splat_of(at, affine.constant, at.array_shape), at
    for size, coefficient in zip(reversed(dimensions), reversed(affine.coefficients), strict=True):
        index = elementwise(at, "remainder", left, splat_of(at, size, at.array_shape))
        left = elementwise(at, "divide", left, splat_of(at, size, at.array_shape))
        if coefficient and size > 1:
            total = elementwise(
                at, "add", total, elementwise(at, "multiply", index, splat_of(at, coefficient, at.array_shape))
            )
    return total


def _number(like: Instruction, value: int) -> Instruction:
    return splat_of(like, np.asarray(value, np.int32), like.array_shape)


LEAST_TERMS = 4096
"""Shorter sums share a pass over the cache with the maximum and the exponentials. Measured on a Zen 5."""


@on_each("reduce")
def one_hot_sums(instruction: Instruction) -> Instruction | None:
    """Replaces a sum of one-hot terms along the last dimension by its term at the label, with the same bits."""
    if len(instruction.operands) != 2:
        return None
    summed, initial = instruction.operands
    shape = summed.array_shape
    last = shape.rank - 1
    if instruction["dimensions"] != (last,) or shape.element_type != "f32" or not 0 < shape.elements < MOST_ELEMENTS:
        return None
    start = splat_value(initial)
    if shape.dimensions[last] < LEAST_TERMS or start is None or start.tobytes() != bytes(4):
        return None
    if single_operation(instruction.called[0]) != "add":
        return None
    terms = OneHotTerms.of(summed)
    if terms is None or not terms.are_zero_elsewhere():
        return None
    found = _AtLabel(terms).value(summed)
    if found is None:
        return None
    # A sum that begins at +0 turns a term of -0 into +0.
    zero = splat_of(instruction, start, found.array_shape)
    return reshape(instruction, elementwise(instruction, "add", zero, found), instruction.array_shape.dimensions)


class _AtLabel:
    """The values [rows] that arrays [..., terms] have at each row's label, or at the nearest index to it."""

    def __init__(self, terms: OneHotTerms) -> None:
        self.inside, self.like = terms.inside, terms.test
        self.dimensions = terms.test.array_shape.dimensions
        *leading, self.count = self.dimensions
        self.leading = tuple(leading)
        self.rows = terms.test.array_shape.elements // self.count
        labels = terms.labels.array_shape
        shape = labels.with_dimensions((self.rows,))
        flat = reshape(self.like, terms.labels, (self.rows,))
        ends = [splat_of(self.like, end, shape) for end in (0, self.count - 1)]
        self.label = elementwise(self.like, "minimum", elementwise(self.like, "maximum", flat, ends[0]), ends[1])
        self.found: dict[tuple[Instruction, Instruction], Instruction | None] = {}
        self.left = MOST_STEPS

    @cached_property
    def position(self) -> Instruction:
        """s32 [rows]: where the labels' elements are in arrays [..., terms]."""
        row = make(self.like, "iota", Shape("s32", (self.rows,)), (), iota_dimension=0)
        begin = elementwise(self.like, "multiply", row, splat_of(row, self.count, row.array_shape))
        return elementwise(self.like, "add", begin, make(self.like, "convert", row.shape, (self.label,)))

    def value(self, array: Instruction) -> Instruction | None:
        """The values of one array; None if they are not computed from few elements."""
        return self._at(array, self.position)

    def _at(self, array: Instruction, at: Instruction) -> Instruction | None:
        """The elements of an array at positions in row-major order, s32 [rows]."""
        if (array, at) not in self.found:
            is_whole = at is self.position and array.array_shape.dimensions == self.dimensions
            self.found[array, at] = self._at_label(array) if is_whole else self._followed(array, at)
        return self.found[array, at]

    def _at_label(self, array: Instruction) -> Instruction | None:
        last = len(self.leading)
        if array in self.inside:
            return self._computed(array, self.position)
        if array.opcode == "iota" and array["iota_dimension"] == last:
            return make(array, "convert", array.array_shape.with_dimensions((self.rows,)), (self.label,))
        if array.opcode == "broadcast":
            source, mapping = array.operands[0], array["dimensions"]
            if last not in mapping:
                return reshape(array, broadcast(array, source, self.leading, mapping), (self.rows,))
            return take(source, source, self.label) if mapping == (last,) else None
        return self._followed(array, self.position)

    def _followed(self, array: Instruction, at: Instruction) -> Instruction | None:
        """The elements, through data movement and operations on elements; None for too many, or too large an array."""
        self.left -= 1
        if self.left < 0 or array.array_shape.elements >= MOST_ELEMENTS:
            return None
        if array.opcode in ("reshape", "copy"):
            return self._at(array.operands[0], at)
        if is_moving(array):
            return self._at(array.operands[0], _before(array, at))
        if is_scalar_constant(array):
            return splat_of(array, array["literal"].reshape(()), array.array_shape.with_dimensions((self.rows,)))
        if array.operands and is_elementwise(array):
            return self._computed(array, at)
        return take(array, reshape(array, array, (array.array_shape.elements,)), at)

    def _computed(self, array: Instruction, at: Instruction) -> Instruction | None:
        if any(operand.array_shape.dimensions != array.array_shape.dimensions for operand in array.operands):
            return None
        operands = [self._at(operand, at) for operand in array.operands]
        kept = [operand for operand in operands if operand is not None]
        shape = array.array_shape.with_dimensions((self.rows,))
        return changed(array, shape=shape, operands=kept) if len(kept) == len(operands) else None
