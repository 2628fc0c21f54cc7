"""Instructions of a step's backward pass, and the stages of gradients that no stage's scope names.

The scope of gradients is `gradient_tape` or `gradients`. Operations traced in a stage's scope, but outside of that one,
are forward. So are loops to which TensorFlow, once gradients are requested, adds lists of the values that gradients
need: it adds them in the loops' scope. The backward pass of a `tf.function` is a call of its own, and only its operands
show its stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from engine.ir import Instruction
from engine.ir.module import topological
from engine.ir.op_names import GRADIENT_SCOPE, STAGE_SCOPE, in_gradient_scope, stage_in

_CALL = re.compile(r"(?:^|.*?/)(?:Stateful)?PartitionedCall(?:_\d+)?(?=/)")


def is_forward_of_a_stage(op_name: str) -> bool:
    """Whether an operation of a stage's layers has this name; gradients taken inside a layer count too."""
    stage, gradient = STAGE_SCOPE.search(op_name), GRADIENT_SCOPE.search(op_name)
    return stage is not None and (gradient is None or stage.start() < gradient.start())


def backward_pass(needed: Sequence[Instruction], results: Iterable[Instruction]) -> set[Instruction]:
    """The instructions that belong to the gradients: by scope, or because they depend on gradients.

    `needed` is in an order in which operands come first, `results` are the step's results other than gradients.
    """
    labelled = [i for i in needed if is_forward_of_a_stage(i.op_name)]
    stages_own, after = set(labelled), set[Instruction]()
    for i in needed:
        if i not in stages_own and (in_gradient_scope(i.op_name) or any(operand in after for operand in i.operands)):
            after.add(i)
    forward = set(topological([*labelled, *(each for each in results if each not in after)]))
    return {i for i in needed if i not in forward}


def stages_of_calls(needed: Iterable[Instruction], backward: set[Instruction]) -> Mapping[Instruction, int]:
    """The stage of each instruction in the backward pass of a called function, where no scope gives it.

    The stage is the last of those whose forward values the call takes.
    """
    calls: dict[str, list[Instruction]] = {}
    for i in needed:
        if i in backward and (call := _CALL.match(i.op_name)) is not None:
            calls.setdefault(call[0], []).append(i)
    found: dict[Instruction, int] = {}
    for members in calls.values():
        if any(stage_in(i.op_name) is not None for i in members):
            continue
        stages = [
            stage for each in _taken(members) if each not in backward and (stage := stage_in(each.op_name)) is not None
        ]
        if stages:
            found |= dict.fromkeys(members, max(stages))
    return found


def _taken(members: Iterable[Instruction]) -> set[Instruction]:
    """The operands of a call, looking through unnamed instructions: tuples and their elements, added by passes."""
    found, pending = set[Instruction](), list(members)
    while pending:
        new = [operand for operand in pending.pop().operands if operand not in found]
        found.update(new)
        pending += [operand for operand in new if not operand.op_name]
    return found
