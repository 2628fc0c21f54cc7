"""A `while` with a flat state, viewed element by element."""

from __future__ import annotations

from dataclasses import dataclass

from engine.ir import Computation, Instruction, Shape, TupleShape
from engine.passes.loops.rebuilding import computation_of, element_of, parameter_of, substituted, tuple_of
from engine.passes.rewriting import changed


def element_read(instruction: Instruction) -> int | None:
    """The index of the element of its computation's argument that an instruction reads; None if it reads none."""
    if instruction.opcode == "get-tuple-element" and instruction.operands[0].opcode == "parameter":
        return int(instruction["tuple_index"])
    return None


@dataclass(eq=False)
class LoopView:
    """`initial` and `following` are the values of each element before the first iteration and after one."""

    loop: Instruction
    body: Computation
    condition: Computation
    initial: list[Instruction]
    following: tuple[Instruction, ...]

    @classmethod
    def of(cls, loop: Instruction) -> LoopView | None:
        """The view; None if the state is not a flat tuple, or the body's root is not a `tuple`."""
        body, condition = loop.called
        flat = isinstance(loop.shape, TupleShape) and all(isinstance(e, Shape) for e in loop.shape.elements)
        if not flat or body.root.opcode != "tuple":
            return None
        initial = [_forwarded(element_of(loop.operands[0], k)) for k in range(len(body.root.operands))]
        return cls(loop, body, condition, initial, body.root.operands)

    def is_invariant(self, element: int) -> bool:
        """Whether no iteration changes the element."""
        return element_read(self.following[element]) == element

    def readers(self, element: int) -> list[Instruction]:
        """The instructions of the body that read the element, without the root's tuple."""
        users = (each for each in self.body.instructions if each is not self.body.root)
        return [user for user in users if any(element_read(operand) == element for operand in user.operands)]


def _forwarded(instruction: Instruction) -> Instruction:
    """The value of a tuple's element, looking through tuples that are taken apart where they are built."""
    while instruction.opcode == "get-tuple-element" and instruction.operands[0].opcode == "tuple":
        instruction = instruction.operands[0].operands[instruction["tuple_index"]]
    return instruction


Stand = int | Instruction
"""The replacement of an element: the index of another one, or a constant."""


def remade(
    view: LoopView,
    kept: list[int],
    stands: dict[int, Stand],
    inserted: list[tuple[Instruction, Instruction]],
    replacements: dict[Instruction, Instruction],
    parameter: Instruction,
) -> Instruction:
    """The loop with the elements `kept`, then `inserted` ones: (value before, value after an iteration).

    `parameter` is the new body's parameter; `replacements` replace instructions of the old body, `stands` elements that
    are read but not kept.
    """
    initial = tuple_of(
        f"{view.loop.name}.initial", [view.initial[k] for k in kept] + [before for before, _ in inserted]
    )
    new = {**_reads(view, view.body, kept, stands, parameter), **replacements}
    following = [view.following[k] for k in kept]
    new = substituted([*following, *(after for _, after in inserted)], new)
    root = tuple_of(view.body.root.name, [new[f] for f in following] + [new[after] for _, after in inserted])
    body = computation_of(view.body.name, parameter, root)
    tested = parameter_of(view.condition.parameters[0].name, [o.shape for o in initial.operands])
    test = substituted([view.condition.root], _reads(view, view.condition, kept, stands, tested))
    condition = computation_of(view.condition.name, tested, test[view.condition.root])
    return changed(view.loop, shape=initial.shape, operands=(initial,), called=(body, condition))


def _reads(
    view: LoopView, computation: Computation, kept: list[int], stands: dict[int, Stand], parameter: Instruction
) -> dict[Instruction, Instruction]:
    """The replacements of the old parameter and of the reads of its elements."""
    index = {element: position for position, element in enumerate(kept)}
    new = {computation.parameters[0]: parameter}
    for instruction in computation.instructions:
        element = element_read(instruction)
        if element is None:
            continue
        stand = stands.get(element, element)
        if isinstance(stand, Instruction):
            new[instruction] = changed(stand)
        elif stand in index:
            new[instruction] = element_of(parameter, index[stand])
    return new
