"""`conditional` becomes the selection between the results of all its branches.

Branches are pure, so computing those that are not taken changes nothing but time; on a BSP machine, where every tile
runs the same program, it saves the host's decision. Branches that hold loops or draw random numbers stay branches.
"""

from __future__ import annotations

from engine.ir import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import RuleSet, make, rewrite

RULES = RuleSet()
STAYS_A_BRANCH = frozenset({"while", "custom-call", "rng", "rng-bit-generator", "infeed", "outfeed"})


def conditionals_to_selects(module: Module) -> Module:
    """Every conditional whose branches only compute, with its branches in line."""
    return inline_calls(rewrite(module, RULES))


@RULES.on("conditional")
def select_between_branches(instruction: Instruction) -> Instruction | None:
    """Calls all branches and selects by the predicate, or by the branch index (out of range: the last)."""
    choice, *arguments = instruction.operands
    if not all(_only_computes(branch) for branch in instruction.called):
        return None
    results = [
        make(instruction, "call", branch.root.shape, (argument,), called=(branch,))
        for branch, argument in zip(instruction.called, arguments, strict=True)
    ]
    if choice.array_shape.element_type == "pred":
        return _select(instruction, choice, results[0], results[1], instruction.shape)
    chosen = results[-1]
    for number in reversed(range(len(results) - 1)):
        index = make(instruction, "constant", choice.shape, (), literal=choice.array_shape.dtype.type(number))
        taken = make(instruction, "compare", Shape("pred"), (choice, index), direction="EQ")
        chosen = _select(instruction, taken, results[number], chosen, instruction.shape)
    return chosen


def _only_computes(branch: Computation) -> bool:
    return all(
        i.opcode not in STAYS_A_BRANCH and all(_only_computes(callee) for callee in i.called)
        for i in branch.instructions
    )


def _select(like: Instruction, taken: Instruction, yes: Instruction, no: Instruction, shape: AnyShape) -> Instruction:
    """The selection for an array, or element by element for a tuple."""
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
