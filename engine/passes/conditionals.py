"""`conditional` becomes the selection between the results of all its branches.

Branches are pure, so computing those not taken costs only time; on a BSP machine, where every tile runs the same
program, it saves a decision on the host. Branches that contain loops or draw random numbers stay branches, chosen by
predicates: a branch index becomes one comparison for each branch but the last. Two branches also stay if one does much
work and the other almost none, as in a weight update that waits for the last of several batches.
"""

from __future__ import annotations

import numpy as np

from engine.ir import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from engine.ir.opcodes import EFFECTS, NOT_STORED, opcodes_of
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import RuleSet, make, rewrite

RULES = RuleSet()
STAYS = "stays_a_branch"
"""The attribute of conditionals that exist to save work: a branch that is not taken is not computed."""
LARGE = 2**16
"""Elements from which on a branch justifies a decision, if the other one has less than 1/16 of them."""
FREE = NOT_STORED | {"copy"}
"""Opcodes without cost; simplify_shapes drops the copies among them."""
STAYS_A_BRANCH = EFFECTS | opcodes_of("random") | {"while", "custom-call"}


def conditionals_to_selects(module: Module) -> Module:
    """Replaces every conditional whose branches only compute by a select, with its branches inlined."""
    return inline_calls(rewrite(module, RULES))


@RULES.on("conditional")
def select_between_branches(instruction: Instruction) -> Instruction | None:
    """Calls all branches and selects by the predicate, or by the branch index (out of range: the last)."""
    choice, *arguments = instruction.operands
    if instruction.get(STAYS) or not all(_only_computes(branch) for branch in instruction.called):
        return None if choice.array_shape.element_type == "pred" else _by_predicates(instruction)
    if choice.array_shape.element_type == "pred" and _is_worth_a_decision(*instruction.called):
        return None
    results = [
        make(instruction, "call", branch.root.shape, (argument,), called=(branch,))
        for branch, argument in zip(instruction.called, arguments, strict=True)
    ]
    if choice.array_shape.element_type == "pred":
        return _select(instruction, choice, results[0], results[1], instruction.shape)
    chosen = results[-1]
    for number in reversed(range(len(results) - 1)):
        taken = _is_index(instruction, choice, number)
        chosen = _select(instruction, taken, results[number], chosen, instruction.shape)
    return chosen


def _by_predicates(instruction: Instruction) -> Instruction:
    """A branch index as a chain of two-way conditionals; an index out of range takes the last branch."""
    choice, *arguments = instruction.operands
    return _choose(instruction, choice, list(instruction.called), arguments, 0)


def _choose(
    like: Instruction, choice: Instruction, branches: list[Computation], arguments: list[Instruction], number: int
) -> Instruction:
    """The choice among branches from `number` on. The second branch takes the index and the remaining arguments."""
    if len(branches) == 1:
        return make(like, "call", like.shape, arguments, called=(branches[0],))
    rest = make(like, "tuple", TupleShape((choice.shape, *(a.shape for a in arguments[1:]))), (choice, *arguments[1:]))
    parameter = make(like, "parameter", rest.shape, (), parameter_number=0)
    inside = [
        make(like, "get-tuple-element", part.shape, (parameter,), tuple_index=k) for k, part in enumerate(rest.operands)
    ]
    root = _choose(like, inside[0], branches[1:], inside[1:], number + 1)
    otherwise = _computation(f"{like.name}.not.{number}", root)
    operands = (_is_index(like, choice, number), arguments[0], rest)
    return make(like, "conditional", like.shape, operands, called=(branches[0], otherwise))


def _computation(name: str, root: Instruction) -> Computation:
    """The computation of a root: all that it depends on, operands first, under names of its own."""
    instructions: dict[Instruction, None] = {}
    stack = [root]
    while stack:
        waiting = [operand for operand in stack[-1].operands if operand not in instructions]
        if waiting:
            stack += waiting
        else:
            instructions.setdefault(stack.pop())
    for position, instruction in enumerate(instructions):
        instruction.name = f"{name}.{position}"
    return Computation(name, list(instructions), root)


def _is_index(like: Instruction, choice: Instruction, number: int) -> Instruction:
    index = make(like, "constant", choice.shape, (), literal=np.asarray(number, choice.array_shape.dtype))
    return make(like, "compare", Shape("pred"), (choice, index), direction="EQ")


def _only_computes(branch: Computation) -> bool:
    return all(
        i.opcode not in STAYS_A_BRANCH and all(_only_computes(callee) for callee in i.called)
        for i in branch.instructions
    )


def _is_worth_a_decision(one: Computation, other: Computation) -> bool:
    less, more = sorted((_work(one), _work(other)))
    return more >= LARGE and less * 16 < more


def _work(branch: Computation) -> int:
    """The elements that a branch computes, or reduces."""
    work = 0
    for instruction in branch.instructions:
        if instruction.opcode not in FREE:
            shapes = [s for each in (instruction, *instruction.operands) for s in each.tuple_shapes]
            inner = instruction.opcode == "call"
            work += sum(map(_work, instruction.called)) if inner else max(s.elements for s in shapes)
    return work


def _select(like: Instruction, taken: Instruction, yes: Instruction, no: Instruction, shape: AnyShape) -> Instruction:
    """The select for an array, or element by element for a tuple."""
    if isinstance(shape, TupleShape):
        parts = []
        for number, element in enumerate(shape.elements):
            both = [make(like, "get-tuple-element", element, (side,), tuple_index=number) for side in (yes, no)]
            parts.append(_select(like, taken, both[0], both[1], element))
        return make(like, "tuple", shape, parts)
    predicate = taken
    if shape.rank:
        spread = Shape("pred", shape.dimensions)
        predicate = make(like, "broadcast", spread, (taken,), dimensions=())
    return make(like, "select", shape, (predicate, yes, no))
