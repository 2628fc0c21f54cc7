"""Instructions that must run before a new value overwrites an old one: a variable's, or in a loop's state."""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.ir.module import reached
from engine.ir.opcodes import AFFINE, TUPLES
from engine.ir.properties import has_side_effect
from engine.passes.scheduling import by_priority

SEEN_THROUGH = AFFINE | TUPLES


def readers_before_updates(module: Module) -> dict[Instruction, list[Instruction]]:
    """Maps each instruction that computes a variable's new value to the other readers of the old one.

    Instructions with side effects count as readers: they may wait for the host, which may end the step with
    variables unchanged. Readers that need the new value themselves, or would close a cycle, are omitted: then the new
    value gets memory of its own.
    """
    users = module.entry.users()
    parameters = module.entry.parameters
    acting = [i for i in module.entry.instructions if has_side_effect(i)]
    orders = _Orders(users)
    for number, result in module.aliases.items():
        writer = _maker(module.results[result])
        others = acting if writer.opcode != "parameter" else []
        for reader in dict.fromkeys([*_readers(parameters[number], users), *others]):
            orders.put_first(reader, writer)
    return orders.before


def readers_first(body: Computation) -> list[Instruction]:
    """A loop's body with readers of the state before the instructions that compute its new values, if possible."""
    users = body.users()
    (parameter,) = body.parameters
    orders = _Orders(users)
    for number, new in enumerate(body.root.operands if body.root.opcode == "tuple" else ()):
        writer = _maker(new)
        for old in users[parameter]:
            if old.get("tuple_index") != number or writer.opcode == "parameter":
                continue
            for reader in _readers(old, users):
                orders.put_first(reader, writer)
    needs = {i: tuple(dict.fromkeys([*i.operands, *orders.before.get(i, ())])) for i in body.instructions}
    return by_priority(needs, lambda instruction: 0)


def _maker(instruction: Instruction) -> Instruction:
    """The instruction that computes a value, through reshapes and tuples."""
    while instruction.opcode in ("reshape", "get-tuple-element"):
        instruction = instruction.operands[0]
    return instruction


def _readers(parameter: Instruction, users: dict[Instruction, list[Instruction]]) -> list[Instruction]:
    """The readers of a parameter's memory, also through data movement that is never stored."""
    found = reached([parameter], lambda i: users[i] if i is parameter or i.opcode in SEEN_THROUGH else ())
    return [each for each in found if each is not parameter and each.opcode not in SEEN_THROUGH]


class _Orders:
    """Orders of instructions that data do not require; `before` maps each to the instructions that must precede it."""

    def __init__(self, users: dict[Instruction, list[Instruction]]) -> None:
        self._users = users
        self._after: dict[Instruction, list[Instruction]] = {}
        self.before: dict[Instruction, list[Instruction]] = {}

    def put_first(self, reader: Instruction, writer: Instruction) -> None:
        """Puts a reader before a writer, unless the reader must come after it."""
        if reader is not writer and not self._reaches(writer, reader):
            self.before.setdefault(writer, []).append(reader)
            self._after.setdefault(reader, []).append(writer)

    def _reaches(self, start: Instruction, goal: Instruction) -> bool:
        """Whether `goal` must come after `start`, by data or by the orders given so far."""
        seen: set[Instruction] = set()
        stack = [start]
        while stack:
            current = stack.pop()
            if current is goal:
                return True
            if current not in seen:
                seen.add(current)
                stack += self._users[current]
                stack += self._after.get(current, ())
        return False
