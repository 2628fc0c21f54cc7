"""`conditional` becomes the selection between the results of all its branches.

Branches are pure, so computing those not taken costs only time; on a BSP machine, where every tile runs the same
program, it saves a decision on the host. Branches that contain loops or draw random numbers stay branches, chosen by
predicates: a branch index becomes one comparison for each branch but the last. Two branches also stay if one does much
work and the other almost none, as in a weight update that waits for the last of several batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import AnyShape, Computation, Instruction, Shape, TupleShape
from engine.ir.opcodes import EFFECTS, NOT_STORED, opcodes_of
from engine.passes import construct
from engine.passes.loops.rebuilding import computation_of, element_of, parameter_of, tuple_of
from engine.passes.rewriting import make, on_each

STAYS = "stays_a_branch"
"""The attribute of conditionals that exist to save work: a branch that is not taken is not computed."""
LARGE = 2**16
"""Elements from which on a branch justifies a decision, if the other one has less than 1/16 of them."""
FREE = NOT_STORED | {"copy"}
"""Opcodes without cost; simplify_shapes drops the copies among them."""
STAYS_A_BRANCH = EFFECTS | opcodes_of("random") | {"while", "custom-call"}


@on_each("conditional")
def conditionals_to_selects(instruction: Instruction) -> Instruction | None:
    """Calls all branches that only compute, and selects one by the predicate, or by the branch index.

    An index out of range takes the last branch.
    """
    choice, *arguments = instruction.operands
    is_pred = choice.array_shape.element_type == "pred"
    if instruction.get(STAYS) or not all(_only_computes(branch) for branch in instruction.called):
        return None if is_pred else _by_predicates(instruction, instruction.operands, instruction.called)
    if is_pred and _is_worth_a_decision(*instruction.called):
        return None
    *results, chosen = (
        make(instruction, "call", branch.root.shape, (argument,), called=(branch,))
        for branch, argument in zip(instruction.called, arguments, strict=True)
    )
    for number in reversed(range(len(results))):
        taken = choice if is_pred else _is_index(instruction, choice, number)
        chosen = _select(instruction, taken, results[number], chosen, instruction.shape)
    return chosen


def _by_predicates(
    like: Instruction, operands: Sequence[Instruction], branches: Sequence[Computation], number: int = 0
) -> Instruction:
    """The branch of an index as a chain of two-way conditionals from branch `number` on; out of range, the last.

    The second branch of each takes the index and the remaining arguments.
    """
    choice, argument, *others = operands
    if not others:
        return make(like, "call", like.shape, (argument,), called=(branches[0],))
    rest = tuple_of("rest", (choice, *others))
    parameter = parameter_of("rest", [each.shape for each in rest.operands])
    inside = [element_of(parameter, k) for k in range(len(rest.operands))]
    root = _by_predicates(like, inside, branches[1:], number + 1)
    otherwise = computation_of(f"{like.name}.not.{number}", parameter, root)
    operands = (_is_index(like, choice, number), argument, rest)
    return make(like, "conditional", like.shape, operands, called=(branches[0], otherwise))


def _is_index(like: Instruction, choice: Instruction, number: int) -> Instruction:
    index = construct.constant(like, number, choice.array_shape)
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
        parts = [
            _select(like, taken, element_of(yes, number), element_of(no, number), element)
            for number, element in enumerate(shape.elements)
        ]
        return make(like, "tuple", shape, parts)
    predicate = construct.broadcast(like, taken, shape.dimensions, ()) if shape.rank else taken
    return make(like, "select", shape, (predicate, yes, no))
