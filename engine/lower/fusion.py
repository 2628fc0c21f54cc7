"""Lowers `fusion` instructions to fused loops."""

from __future__ import annotations

from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.lower.joining import position_of
from engine.program.building.loops import run_draft
from engine.program.building.nests import Drafting, Position
from engine.program.program import Buffer


@lowering("fusion")
def lower_fusion(context: Context, instruction: Instruction) -> Value:
    """One compute set for all results of a fusion; results are returned in the structure of its root."""
    root = instruction.called[0].root
    roots = list(root.operands) if root.opcode == "tuple" else [root]
    sources = [context.buffer(o) for o in instruction.operands]
    results: list[Buffer] = []
    shaped: list[Value] = []
    positions: dict[int, Position] = {}
    for number, each in enumerate(roots):
        position = position_of(context, instruction, each, number, len(roots))
        if position is not None:
            positions[number] = position
            results.append(position.buffer)
            shaped.append(position.buffer)
            continue
        mine: list[Buffer] = []
        for shape in each.tuple_shapes:
            target = context.targets.get(instruction) if len(roots) == 1 else None
            mine.append(target or context.new_buffer(f"{instruction.name}.{len(results) + len(mine)}", shape))
        results += mine
        shaped.append(mine[0] if isinstance(each.shape, Shape) else tuple(mine))
    draft = Drafting(instruction["loops"], roots, positions).draft
    run_draft(context, instruction.name, draft, sources, results, instruction.op_name)
    return shaped[0] if root.opcode != "tuple" else tuple(shaped)
