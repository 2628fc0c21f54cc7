"""Results that take memory, their readers, and the memory that an order of instructions needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.ir import Computation, Instruction
from engine.ir.opcodes import NOT_STORED


@dataclass(slots=True)
class LiveStorage:
    """Storage of one computation: `reads` and `readers` look through instructions that take no memory of their own."""

    sources: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    reads: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    readers: dict[Instruction, list[Instruction]] = field(default_factory=dict)
    bytes: dict[Instruction, int] = field(default_factory=dict)
    kept: frozenset[Instruction] = frozenset()
    """Results that the root needs, which are therefore live to the end."""


def storage_of(computation: Computation, in_place: Iterable[Instruction] = ()) -> LiveStorage:
    """The storage of a computation; results in `in_place`, or elements of them, overwrite memory that exists anyway."""
    storage = LiveStorage()
    overwriting = _bytes_overwritten(in_place)
    for instruction in computation.instructions:
        found = _sources_of_operands(instruction, storage)
        if instruction.opcode in NOT_STORED:
            storage.sources[instruction] = found
            continue
        storage.sources[instruction] = (instruction,)
        storage.reads[instruction] = found
        storage.readers[instruction] = []
        storage.bytes[instruction] = instruction.shape.bytes - overwriting.get(instruction, 0)
        for source in found:
            storage.readers[source].append(instruction)
    storage.kept = frozenset(storage.sources[computation.root])
    return storage


def _bytes_overwritten(in_place: Iterable[Instruction]) -> dict[Instruction, int]:
    """Bytes of each instruction's output that are results written in place."""
    made: dict[tuple[Instruction, int | None], int] = {}
    for result in in_place:
        maker, element, size = result, None, result.shape.bytes
        while maker.opcode in ("reshape", "get-tuple-element"):
            element = maker.get("tuple_index", element)
            maker = maker.operands[0]
        made[maker, element] = size
    found: dict[Instruction, int] = {}
    for (maker, _), size in made.items():
        found[maker] = found.get(maker, 0) + size
    return found


def _sources_of_operands(instruction: Instruction, storage: LiveStorage) -> tuple[Instruction, ...]:
    if len(instruction.operands) == 1:
        return storage.sources[instruction.operands[0]]
    return tuple(dict.fromkeys(s for operand in instruction.operands for s in storage.sources[operand]))


def peak_of(order: Iterable[Instruction], storage: LiveStorage) -> int:
    """The most bytes live at once when the instructions that take memory run in this order."""
    waiting = {instruction: len(readers) for instruction, readers in storage.readers.items()}
    alive = peak = 0
    for instruction in order:
        alive += storage.bytes[instruction]
        peak = max(peak, alive)
        for source in storage.reads[instruction]:
            waiting[source] -= 1
        for done in (instruction, *storage.reads[instruction]):
            if not waiting[done] and done not in storage.kept:
                alive -= storage.bytes[done]
    return peak


def peak_liveness(computation: Computation, in_place: Iterable[Instruction] = ()) -> int:
    """The most bytes that results take at once in the computation's order, without parameters and constants."""
    storage = storage_of(computation, in_place)
    return peak_of([i for i in computation.instructions if i in storage.reads], storage)
