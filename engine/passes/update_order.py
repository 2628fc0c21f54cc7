"""Which instructions must run before a variable's new value may be written over its old one."""

from __future__ import annotations

from engine.ir import Instruction, Module
from engine.ir.affine import MOVING
from engine.passes.opcodes import has_side_effect

SEEN_THROUGH = MOVING | {"get-tuple-element", "tuple", "bitcast"}


def readers_before_updates(module: Module) -> dict[Instruction, list[Instruction]]:
    """For each instruction that makes a variable's new value, the other readers of the old one.

    What has side effects counts as one: it may wait for the host, who may end the step while variables are as before.
    Readers that need the new value themselves, and those that would close a cycle, are left out: there the new
    value gets memory of its own.
    """
    users = module.entry.users()
    parameters = module.entry.parameters
    acting = [i for i in module.entry.instructions if has_side_effect(i)]
    before: dict[Instruction, list[Instruction]] = {}
    for number, result in module.aliases.items():
        writer = _maker(module.results[result])
        others = acting if writer.opcode != "parameter" else []
        for reader in dict.fromkeys([*_readers(parameters[number], users), *others]):
            if reader is not writer and not _reaches(writer, reader, users, before):
                before.setdefault(writer, []).append(reader)
    return before


def _maker(instruction: Instruction) -> Instruction:
    """The instruction that computes a value, behind reshapes and tuples."""
    while instruction.opcode in ("reshape", "get-tuple-element", "bitcast"):
        instruction = instruction.operands[0]
    return instruction


def _readers(parameter: Instruction, users: dict[Instruction, list[Instruction]]) -> list[Instruction]:
    """Those that read a parameter's memory, also through moves that never become memory."""
    found: dict[Instruction, None] = {}
    stack = [parameter]
    while stack:
        for user in users[stack.pop()]:
            if user.opcode in SEEN_THROUGH:
                stack.append(user)
            else:
                found[user] = None
    return list(found)


def _reaches(
    start: Instruction,
    goal: Instruction,
    users: dict[Instruction, list[Instruction]],
    before: dict[Instruction, list[Instruction]],
) -> bool:
    """Whether `goal` must come after `start`, by data or by the orders given so far."""
    followers: dict[Instruction, list[Instruction]] = {}
    for later, earlier in before.items():
        for each in earlier:
            followers.setdefault(each, []).append(later)
    seen: set[Instruction] = set()
    stack = [start]
    while stack:
        current = stack.pop()
        if current is goal:
            return True
        if current not in seen:
            seen.add(current)
            stack += users[current]
            stack += followers.get(current, [])
    return False
