"""Marks of `recomputation_checkpoint`: values stored although the backward part recomputes the rest of its stage.

A mark is a custom call that returns its operand. An imported module has its marks removed; the source of a marked
value has the frontend attribute CHECKPOINT instead, which passes keep.
"""

from __future__ import annotations

from engine.ir import Instruction, Module
from engine.ir.device_operations import CHECKPOINT, RECOMPUTATION_CHECKPOINT, is_checkpoint, target_of
from engine.partition.crossings import RECOMPUTED
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import changed, rewrite
from engine.passes.run_passes import run_passes


def with_checkpoints(module: Module) -> Module:
    """The module without marks, the sources of marked values annotated; the same module if it has no marks."""
    if not any(_is_mark(i) for i in module.instructions()):
        return module
    # A value that is marked inside a function may be computed outside of it.
    module = run_passes(module, (inline_calls,))
    kept = {_source(i) for i in module.instructions() if _is_mark(i)}

    def visit(before: Instruction, each: Instruction) -> Instruction | None:
        if _is_mark(each):
            return each.operands[0]
        if before in kept and not is_checkpoint(each):
            return changed(each, frontend_attributes={**each.get("frontend_attributes", {}), CHECKPOINT: "true"})
        return None

    return rewrite(module, visit)


def _is_mark(instruction: Instruction) -> bool:
    return target_of(instruction) == RECOMPUTATION_CHECKPOINT


def _source(mark: Instruction) -> Instruction:
    """The instruction that computes a marked value; moving data again costs less than storing it twice."""
    found = mark.operands[0]
    while found.operands and (_is_mark(found) or found.opcode in RECOMPUTED):
        found = found.operands[0]
    return found
