"""Limits sorts to the elements that have readers: a search for the k largest need not sort the rest."""

from __future__ import annotations

from engine.ir import Computation, Instruction
from engine.passes import construct
from engine.passes.loops.rebuilding import element_of
from engine.passes.rewriting import Visit, changed, for_each


@for_each
def limit_sorts(computation: Computation) -> Visit:
    """Gives sorts all of whose results are sliced a `limit`, and results of that length.

    The sorts without a limit are left for dead_code to remove.
    """
    if all(i.opcode != "sort" for i in computation.instructions):
        return lambda before, instruction: None
    users = computation.users()
    limits = {
        sort: limit
        for sort in computation.instructions
        if sort.opcode == "sort" and (limit := _limit(sort, users, computation.root)) is not None
    }
    limited: dict[Instruction, Instruction] = {}

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        sort = _sliced_sort(before)
        if sort not in limits:
            return None
        (result,) = instruction.operands
        number = result["tuple_index"] if result.opcode == "get-tuple-element" else None
        new_sort = result if number is None else result.operands[0]
        part = limited.setdefault(sort, construct.shaped(changed(new_sort, limit=limits[sort])))
        part = part if number is None else element_of(part, number)
        return part if part.shape == instruction.shape else changed(instruction, operands=(part,))

    return visit


def _sliced_sort(instruction: Instruction) -> Instruction | None:
    """The sort whose elements a slice reads."""
    if instruction.opcode != "slice":
        return None
    (source,) = instruction.operands
    if source.opcode == "get-tuple-element":
        source = source.operands[0]
    return source if source.opcode == "sort" else None


def _limit(sort: Instruction, users: dict[Instruction, list[Instruction]], root: Instruction) -> int | None:
    """The number of leading elements that are read, if all readers are slices that leave some out."""
    (dimension,) = sort["dimensions"]
    results = [sort] if len(sort.operands) == 1 else users[sort]
    readers = [reader for result in results for reader in users[result]]
    if root in (sort, *results) or not readers or any(_sliced_sort(reader) is not sort for reader in readers):
        return None
    limit = max(int(reader["slice_dimensions"][dimension].limit) for reader in readers)
    return limit if limit < sort.operands[0].array_shape.dimensions[dimension] else None
