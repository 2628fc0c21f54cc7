"""Elementwise fusion: instructions over the same loops become one `fusion`, one codelet, one pass over memory.

Walking from users to operands, an instruction joins the group of its users if they share its loops; with users in
several groups it joins as many as it can without a cycle. Inputs of a group that reach it through data movement alone
(broadcast, transpose, slice ...) are read in place.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.ir.opcodes import CONTROL_FLOW
from engine.passes.activation_derivatives import ActivationDerivatives
from engine.passes.fusible import is_elementwise, is_moving, is_reduction, loops_of, reads_pointwise, reduced_loops
from engine.passes.fusion_building import build_fusions
from engine.passes.groups import Groups
from engine.passes.rewriting import Callees, with_computations


def fuse(module: Module) -> Module:
    """Groups elementwise instructions and reduces into `fusion` instructions: in the entry, in loops and branches."""
    callers = [i for each in module.computations() for i in each.instructions if i.opcode in CONTROL_FLOW]
    run = {module.entry, *(called for instruction in callers for called in instruction.called)}
    return with_computations(module, lambda each, new: fuse_computation(each, new) if each in run else each)


def fuse_computation(computation: Computation, callees: Callees) -> Computation:
    """One computation with its groups fused; `callees` replace the computations it calls."""
    groups = Groups(computation)
    users = computation.users()
    kept = ActivationDerivatives(computation).kept()
    for instruction in reversed(computation.instructions):
        if is_reduction(instruction):
            groups.start(instruction, loops_of(instruction), reduced_loops(instruction))
        elif instruction in kept:
            # A kept derivative shares functions with the forward pass, so it is not fused into the backward pass.
            groups.start(instruction, loops_of(instruction))
        elif is_elementwise(instruction) and not _is_read_in_place(instruction, users):
            _position(instruction, groups, users)
    for instruction in computation.instructions:
        if instruction.opcode == "scatter":
            _join_readers(instruction, groups, users)
    return build_fusions(computation, groups, callees)


def _is_read_in_place(instruction: Instruction, users: dict[Instruction, list[Instruction]]) -> bool:
    """Whether a conversion is read through data movement alone: recomputing it costs less than a buffer."""
    readers = users[instruction]
    return (
        instruction.opcode == "convert"
        and bool(readers)
        and all(is_moving(r) and r.opcode != "reshape" and all(is_elementwise(u) for u in users[r]) for r in readers)
    )


def _position(instruction: Instruction, groups: Groups, users: dict[Instruction, list[Instruction]]) -> None:
    loops = loops_of(instruction)
    readers = users[instruction]
    found = [groups.of[u] for u in readers if u in groups.of and reads_pointwise(u, instruction)]
    candidates = [g for g in dict.fromkeys(found) if g.loops == loops]
    if len(candidates) == 1 and len(found) == len(readers) and groups.may_absorb(instruction, candidates[0]):
        groups.absorb(instruction, candidates[0])
        return
    group = groups.start(instruction, loops)
    for candidate in reversed(candidates):
        if groups.may_join(group, candidate):
            group = groups.join(group, candidate)


def _join_readers(scatter: Instruction, groups: Groups, users: dict[Instruction, list[Instruction]]) -> None:
    """Joins the groups that read sums of rows, such as the two of Lion: sums with one reader are never stored."""
    found = [groups.of[u] for u in users[scatter] if u in groups.of and reads_pointwise(u, scatter)]
    kept = [g for g in dict.fromkeys(found) if g.reduced is None]
    for each in kept[1:]:
        if groups.may_join(kept[0], each):
            kept[0] = groups.join(kept[0], each)
