"""Operations whose result a reshape merges are computed on the merged dimensions: bias, softmax and argmax of logits.

Frameworks reshape a product's result to [batch, positions, classes], and for a loss back to [rows, classes]. Operations
between the two reshapes then have other loops than the loss, and need codelets of their own. The pass moves a region of
elementwise operations behind the second reshape, with its reductions, if all inputs of the region (products,
broadcasts) can be merged as easily.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from engine.ir import Computation, Instruction, Shape
from engine.passes import construct
from engine.passes.fusible import is_elementwise, is_reduction, is_unit_reshape
from engine.passes.loops.rebuilding import element_of
from engine.passes.rewriting import RuleSet, Visit, changed, for_each, make
from engine.passes.rules import reshape, trivial
from engine.passes.splats import splat_value

RULES = RuleSet(trivial.RULES, reshape.RULES)


@dataclass(frozen=True, slots=True)
class Merge:
    """The first `count` of some dimensions become one: `split` becomes `merged`."""

    split: tuple[int, ...]
    count: int

    @property
    def merged(self) -> tuple[int, ...]:
        """The dimensions after the merge."""
        return (prod(self.split[: self.count]), *self.split[self.count :])

    def after(self, dimensions: Iterable[int]) -> tuple[int, ...] | None:
        """The numbers of some dimensions after the merge; None if some but not all merged ones are among them."""
        found = set(dimensions)
        gone = found & set(range(self.count))
        if gone and len(gone) != self.count:
            return None
        return tuple(sorted({0} if gone else set()) + sorted(d - self.count + 1 for d in found - gone))


@for_each
def merged_dimensions(computation: Computation) -> Visit:
    """Computes regions of fusible operations, and the reductions of their results, on merged dimensions."""
    found = _Regions(computation).found

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        merge = found.get(before)
        if merge is None:
            return RULES(before, instruction)
        return _merged_reduce(instruction, merge) if before.opcode == "reduce" else _merged(instruction, merge)

    return visit


class _Regions:
    """The elementwise operations and reductions of a computation to be computed on merged dimensions."""

    def __init__(self, computation: Computation) -> None:
        self.users = computation.users()
        self.found: dict[Instruction, Merge] = {}
        reshapes = [i for i in computation.instructions if i.opcode == "reshape" and _computes(i.operands[0])]
        for each in reshapes:
            merge = _merge(each.operands[0], each)
            if merge is None or each.operands[0] in self.found:
                continue
            if any(_computes(user) or is_reduction(user) for user in self.users[each]):
                self._add(each.operands[0], merge)
        for each in reshapes:
            merge = _merge(each, each.operands[0])
            if merge is not None:
                self._add_reductions([each], merge)

    def _add(self, start: Instruction, merge: Merge) -> None:
        """Adds the region of elementwise operations around `start`, if all of it can be merged."""
        inside = {start: None}
        stack = [start]
        while stack:
            current = stack.pop()
            inputs = [each for each in current.operands if not _merges(each, merge)]
            if not all(_computes(each) and each.array_shape.dimensions == merge.split for each in inputs):
                return
            around = [*inputs, *(each for each in self.users[current] if _computes(each))]
            fresh = [each for each in dict.fromkeys(around) if each not in inside]
            inside.update(dict.fromkeys(fresh))
            stack += fresh
        self.found.update(dict.fromkeys(inside, merge))
        self._add_reductions(list(inside), merge)

    def _add_reductions(self, arrays: list[Instruction], merge: Merge) -> None:
        """Adds the reductions of some arrays that reduce all or none of the merged dimensions."""
        for user in dict.fromkeys(user for each in arrays for user in self.users[each]):
            if not is_reduction(user):
                continue
            reduced = user.operands[: len(user.operands) // 2]
            if (
                all(each in arrays or _merges(each, merge) for each in reduced)
                and merge.after(user["dimensions"]) is not None
            ):
                self.found[user] = merge


def _computes(instruction: Instruction) -> bool:
    return is_elementwise(instruction) and not is_unit_reshape(instruction)


def _merge(before: Instruction, after: Instruction) -> Merge | None:
    """The merge of leading dimensions by which two arrays of as many elements differ; None if they differ otherwise."""
    split, merged = before.array_shape.dimensions, after.array_shape.dimensions
    count = len(split) - len(merged) + 1
    if count < 2 or len(merged) < 2 or 0 in split or 1 in split:
        return None
    found = Merge(split, count)
    return found if found.merged == merged else None


def _merges(instruction: Instruction, merge: Merge) -> bool:
    """Whether an array can be read on the merged dimensions at no cost."""
    if splat_value(instruction) is not None:
        return True
    if instruction.array_shape.dimensions != merge.split:
        return False
    if instruction.opcode == "reshape":
        return instruction.operands[0].array_shape.dimensions == merge.merged
    if instruction.opcode == "broadcast":
        return merge.after(instruction["dimensions"]) is not None
    return instruction.opcode == "iota" and instruction["iota_dimension"] >= merge.count


def _flat(like: Instruction, array: Instruction, merge: Merge) -> Instruction:
    """An array on the merged dimensions."""
    shape = array.array_shape
    if shape.dimensions != merge.split:
        return array
    if array.opcode == "iota":
        (number,) = merge.after((array["iota_dimension"],)) or ()
        return make(array, "iota", shape.with_dimensions(merge.merged), (), iota_dimension=number)
    return construct.reshape(like, array, merge.merged)


def _merged(instruction: Instruction, merge: Merge) -> Instruction:
    operands = [_flat(instruction, each, merge) for each in instruction.operands]
    shape = instruction.array_shape.with_dimensions(merge.merged)
    return construct.reshape(instruction, changed(instruction, shape=shape, operands=operands), merge.split)


def _merged_reduce(instruction: Instruction, merge: Merge) -> Instruction:
    """The reduction on merged dimensions; its results have their dimensions again."""
    count = len(instruction.operands) // 2
    dimensions = merge.after(instruction["dimensions"])
    assert dimensions is not None
    arrays = [_flat(instruction, each, merge) for each in instruction.operands[:count]]
    operands = [*arrays, *instruction.operands[count:]]
    reduced = construct.shaped(changed(instruction, operands=operands, dimensions=dimensions))
    if isinstance(instruction.shape, Shape):
        return construct.reshape(instruction, reduced, instruction.array_shape.dimensions)
    results = [
        construct.reshape(instruction, element_of(reduced, k), whole.dimensions)
        for k, whole in enumerate(instruction.tuple_shapes)
    ]
    return make(instruction, "tuple", instruction.shape, results)
