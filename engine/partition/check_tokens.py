"""Tokens of the checks of values, which keep them alive: parameters of the entry, and elements of loops' states.

Each check of the entry, and each loop or branch with checks, has a token of its own, which it returns: a variable of
the program. So checks stay where they are when a step is repeated for micro-batches, replicated or cut into stages.
"""

from __future__ import annotations

from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.ir.device_operations import TOKEN
from engine.ir.value_checks import CHECK_TOKEN, ValueCheck, is_value_check
from engine.partition.token_copies import TokenCopy, Tokens
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import changed


def with_check_tokens(module: Module) -> tuple[Module, list[int]]:
    """The module with a token for each check of TensorFlow's functions, and the tokens' parameter numbers."""
    checks, entry = _Checks(), module.entry
    copy = _Entry(Builder(entry.name), checks, len(entry.parameters))
    checks.add_all(copy, entry)
    results = [copy.whole(each) for each in module.results]
    root = copy.b.tuple(*results, *copy.given)
    root.op_name = entry.root.op_name
    numbers = range(copy.first, copy.first + len(copy.given))
    aliases = {**module.aliases, **{number: len(results) + k for k, number in enumerate(numbers)}}
    return Module(module.name, with_own_names(copy.b.build(root)), aliases), list(numbers)


class _Checks(Tokens):
    """Checks of values."""

    def takes(self, instruction: Instruction) -> bool:
        return is_value_check(instruction)

    def add(self, copy: TokenCopy, instruction: Instruction) -> None:
        made = changed(instruction, operands=(copy.whole(_before_conversion(instruction)), copy.take()))
        copy.b.instructions.append(made)
        copy.new[instruction] = made
        copy.give(made)


class _Entry(TokenCopy):
    """The entry: a parameter for each token, from number `first` on. `given` are the tokens after the checks."""

    def __init__(self, b: Builder, tokens: Tokens, first: int) -> None:
        super().__init__(b, tokens)
        self.first, self.given = first, list[Instruction]()

    def take(self) -> Instruction:
        number = self.first + len(self.given)
        made = self.b.instruction("parameter", TOKEN, parameter_number=number)
        made.name = made.op_name = f"{CHECK_TOKEN}.{number}"
        return made

    def give(self, token: Instruction) -> None:
        self.given.append(token)


def _before_conversion(check: Instruction) -> Instruction:
    """The operand of a check of a range, before its conversion from floats: NaN is no integer."""
    (operand,), own = check.operands, ValueCheck.of(check)
    current = operand
    while own.kind == "range" and len(own.bounds) == 1:
        if current.opcode != "convert" and current.opcode not in ("reshape", "copy"):
            break
        given = current.operands[0]
        if current.opcode == "convert" and given.array_shape.element_type in ("f32", "f64"):
            return given
        if current.opcode == "convert" and given.array_shape.element_type not in ("s32", "s64"):
            break
        current = given
    return operand
