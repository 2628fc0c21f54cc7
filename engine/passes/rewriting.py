"""The driver of all rewriting passes: one sweep over each computation, operands first, until no rule applies.

A rule sees an instruction whose operands are final and returns its replacement, or None. The replacement may be
built from new instructions; the rules are applied to them as well. No instruction is changed: those that a rule or
a rewritten operand affects are copied, all others stay the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from engine.errors import InternalError
from engine.ir import AnyShape, Computation, Instruction, Module

Rule = Callable[[Instruction], Instruction | None]
AnyRule = TypeVar("AnyRule", bound=Rule)
Callees = dict[Computation, Computation]
"""The new computation in place of each old one."""
Visit = Callable[[Instruction, Instruction], Instruction | None]
"""Takes an instruction before and after its operands were rewritten; returns a replacement or None."""


class RuleSet:
    """Rules by the opcode they apply to; calling it tries them in the order of their definition."""

    def __init__(self, *others: RuleSet) -> None:
        self._rules: dict[str, list[tuple[str, Rule]]] = {}
        for other in others:
            for opcode, rules in other._rules.items():
                self._rules.setdefault(opcode, []).extend(rules)

    def on(self, *opcodes: str, of: str = "") -> Callable[[AnyRule], AnyRule]:
        """A decorator that adds a rule for some opcodes, or for those whose first operand is one `of` an opcode."""

        def add(rule: AnyRule) -> AnyRule:
            for opcode in opcodes:
                self._rules.setdefault(opcode, []).append((of, rule))
            return rule

        return add

    def __call__(self, before: Instruction, instruction: Instruction) -> Instruction | None:
        for of, rule in self._rules.get(instruction.opcode, ()):
            applies = not of or instruction.operands[0].opcode == of
            if applies and (replacement := rule(instruction)) is not None:
                return replacement
        return None


def make(
    like: Instruction,
    opcode: str,
    shape: AnyShape,
    operands: Iterable[Instruction],
    called: tuple[Computation, ...] = (),
    **attributes: Any,
) -> Instruction:
    """A new instruction that replaces (a part of) another one and has its op_name."""
    name = like.name if opcode == like.opcode else opcode
    return Instruction(name, opcode, shape, tuple(operands), attributes, called, like.op_name)


def changed(
    instruction: Instruction,
    *,
    shape: AnyShape | None = None,
    operands: Iterable[Instruction] | None = None,
    called: tuple[Computation, ...] | None = None,
    name: str | None = None,
    **attributes: Any,
) -> Instruction:
    """A copy of an instruction with some fields changed."""
    return Instruction(
        instruction.name if name is None else name,
        instruction.opcode,
        instruction.shape if shape is None else shape,
        instruction.operands if operands is None else tuple(operands),
        {**instruction.attributes, **attributes} if attributes else instruction.attributes,
        instruction.called if called is None else called,
        instruction.op_name,
    )


def with_parts(
    instruction: Instruction, operands: Iterable[Instruction], called: Iterable[Computation] | None = None
) -> Instruction:
    """The instruction with other operands and computations; itself if they are the same."""
    operands = tuple(operands)
    called = instruction.called if called is None else tuple(called)
    if operands == instruction.operands and called == instruction.called:
        return instruction
    return changed(instruction, operands=operands, called=called)


def with_computations(module: Module, change: Callable[[Computation, Callees], Computation]) -> Module:
    """The module with each computation changed, callees first, given those changed so far; itself if none changes."""
    new: Callees = {}
    for computation in module.computations():
        new[computation] = change(computation, new)
    entry = new[module.entry]
    return module if entry is module.entry else Module(module.name, entry, dict(module.aliases))


def with_callees(computation: Computation, callees: Callees) -> Computation:
    """The computation with changed callees; itself if it calls none of them."""
    return _Sweep(lambda before, after: None, callees).run(computation)


def rewrite(module: Module, visit: Visit) -> Module:
    """Rewrites every computation of a module with the same rules."""
    return rewrite_each(module, lambda computation: visit)


def rewrite_each(module: Module, visit_for: Callable[[Computation], Visit]) -> Module:
    """Rewrites every computation, callees first, with rules built for it; the same module if none changed."""
    return with_computations(module, lambda computation, new: _Sweep(visit_for(computation), new).run(computation))


def for_each(visit_for: Callable[[Computation], Visit]) -> Callable[[Module], Module]:
    """A decorator: the pass that rewrites every computation with rules built for it."""

    @wraps(visit_for)
    def rewriting(module: Module) -> Module:
        return rewrite_each(module, visit_for)

    return rewriting


def on_each(*opcodes: str) -> Callable[[Rule], Callable[[Module], Module]]:
    """A decorator: the pass that applies a rule to all instructions of some opcodes."""

    def applying(rule: Rule) -> Callable[[Module], Module]:
        rules = RuleSet()
        rules.on(*opcodes)(rule)
        return wraps(rule)(lambda module: rewrite(module, rules))

    return applying


class Names:
    """Gives each instruction of a computation a unique name."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self._owners: dict[str, Instruction] = {i.name: i for i in instructions}
        self._next: dict[str, int] = {}

    def settle(self, instruction: Instruction, stands_for: Instruction) -> Instruction:
        """The instruction, renamed if its name belongs to another one than `stands_for`."""
        owner = self._owners.setdefault(instruction.name, instruction)
        if owner is not instruction:
            if owner is not stands_for:
                instruction = changed(instruction, name=self._unused(instruction.name))
            self._owners[instruction.name] = instruction
        return instruction

    def _unused(self, name: str) -> str:
        stem, _, number = name.rpartition(".")
        stem = stem if stem and number.isdigit() else name
        count = self._next.get(stem, 1)
        while f"{stem}.{count}" in self._owners:
            count += 1
        self._next[stem] = count + 1
        return f"{stem}.{count}"


class _Sweep:
    """The rewriting of one computation: `new` maps every instruction seen to its current replacement."""

    def __init__(self, visit: Visit, computations: Callees) -> None:
        self.visit = visit
        self.computations = computations
        self.new: dict[Instruction, Instruction] = {}
        self.instructions: list[Instruction] = []

    def run(self, computation: Computation) -> Computation:
        self.names = Names(computation.instructions)
        new = self.new
        for instruction in computation.instructions:
            operands = tuple(map(new.get, instruction.operands))
            replacement = None if instruction in new or None in operands else self.visited(instruction, operands)
            if instruction not in new:
                self.settle(instruction, replacement)
        root = self.new[computation.root]
        if root is computation.root and self.instructions == computation.instructions:
            return computation
        return Computation(computation.name, self.instructions, root)

    def settle(self, instruction: Instruction, replacement: Instruction | None) -> None:
        """Rewrites an instruction, which may have a replacement, and all new instructions of its replacements."""
        new = self.new
        replaced = {} if replacement is None else {instruction: replacement}
        stack = [instruction, *replaced.values()]
        while stack:
            current = stack[-1]
            if current in new:
                stack.pop()
            elif current in replaced:
                new[current] = new[replaced[current]]
            elif None in (operands := tuple(map(new.get, current.operands))):
                stack += [operand for operand in current.operands if operand not in new]
            elif (replacement := self.visited(current, operands)) is not None:
                replaced[current] = replacement
                stack.append(replacement)

    def visited(self, current: Instruction, operands: tuple[Instruction | None, ...]) -> Instruction | None:
        """The replacement of an instruction with rewritten operands; None if there is none, and it is kept."""
        candidate = current
        if current.called or operands != current.operands:
            called = [self.computations.get(callee, callee) for callee in current.called]
            candidate = with_parts(current, [self.new[operand] for operand in current.operands], called)
        replacement = self.visit(current, candidate)
        if replacement is None or replacement is candidate:
            kept = self.names.settle(candidate, current)
            self.new[current] = self.new[kept] = kept
            self.instructions.append(kept)
            return None
        _check(candidate, replacement)
        return replacement


def _check(before: Instruction, after: Instruction) -> None:
    if after.shape != before.shape:
        raise InternalError(
            f"Expected a rewrite of {before!r} to keep its shape. Received: {after!r}. Correct the rule that made it."
        )
