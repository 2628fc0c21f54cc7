"""Lowers `fusion` instructions: a generated codelet, cut into units, and a second one where sums are split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.emit.nest import Constant, Input, Nest, Reduction
from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.lower.nests import Draft, Drafting, Reached, nest_of
from engine.lower.units import Cut, cut
from engine.program.program import Buffer, ComputeSet, Effort, Partition, Relocation, Span


@lowering("fusion")
def lower_fusion(context: Context, instruction: Instruction) -> Value:
    """One compute set for all results of a fusion; results come back in the shape of its root."""
    root = instruction.called[0].root
    roots = list(root.operands) if root.opcode == "tuple" else [root]
    sources = [context.buffer(o) for o in instruction.operands]
    draft = Drafting(instruction["loops"], roots).draft
    results: list[Buffer] = []
    shaped: list[Value] = []
    for number, each in enumerate(roots):
        mine: list[Buffer] = []
        for shape in each.tuple_shapes:
            target = context.targets.get(instruction) if len(roots) == 1 else None
            target = target or context.part_targets.get((instruction, number))
            mine.append(target or context.new_buffer(f"{instruction.name}.{len(results) + len(mine)}", shape))
        results += mine
        shaped.append(mine[0] if isinstance(each.shape, Shape) else tuple(mine))
    run_draft(context, instruction.name, draft, sources, results, instruction.op_name)
    return shaped[0] if root.opcode != "tuple" else tuple(shaped)


def run_draft(
    context: Context, name: str, draft: Draft, sources: list[Buffer], results: list[Buffer], op_name: str
) -> None:
    """Emits the compute set (or two) of a draft that reads `sources` and writes `results`; none for empty ones."""
    if 0 in draft.extents:
        return
    plan = cut(draft, sources, context.partitions)
    nest = nest_of(plan.draft, plan.loop)
    if not nest.splits_reduction:
        context.emit(_compute_set(name, nest, plan, sources, results, op_name))
        return
    _emit_split(context, name, nest, plan, sources, results, op_name)


def _emit_split(
    context: Context,
    name: str,
    nest: Nest,
    plan: Cut,
    sources: list[Buffer],
    results: list[Buffer],
    op_name: str,
) -> None:
    """Each unit reduces its piece into a partial result; a second compute set combines them in order."""
    partial_numbers = [r.source for r in plan.draft.reached if r.partial]
    partials: dict[int, Buffer] = {}
    for number in partial_numbers:
        assert number is not None
        shape = results[number].shape
        partials[number] = context.new_buffer(
            f"{results[number].name}.partial", shape.with_dimensions((plan.units, *shape.dimensions))
        )
    written = [partials.get(k, buffer) for k, buffer in enumerate(results)]
    context.emit(_compute_set(name, nest, plan, sources, written, op_name))
    reductions = iter(plan.draft.reductions)
    for number in partial_numbers:
        assert number is not None
        reduction = next(reductions)
        _combine(context, plan, reduction, partials[number], results[number], sources, op_name)


def _combine(
    context: Context,
    plan: Cut,
    reduction: Reduction,
    partial: Buffer,
    result: Buffer,
    sources: list[Buffer],
    op_name: str,
) -> None:
    elements, item = result.shape.elements, result.shape.dtype.itemsize
    element_type = result.shape.element_type
    start = plan.draft.nodes[reduction.initial[0]]
    reached = [
        Reached(element_type, 0, 0, (elements * item, item)),
        Reached(element_type, 0, 0, (0, item), writes=True, partial=True),
    ]
    read = [partial]
    if not isinstance(start, Constant):
        assert isinstance(start, Input)
        initial = plan.draft.reached[start.access]
        assert initial.source is not None
        read.append(sources[initial.source])
        reached.append(Reached(element_type, 1, initial.offset, (0, 0)))
        start = Input(2)
    combined = replace(reduction, values=(0,), initial=(1,), accesses=(1,))
    draft = Draft((plan.units, elements), (True, False), [Input(0), start], reached, reductions=[combined])
    whole = Cut(draft, 1, max(1, elements))
    if elements > 4096:
        whole = Cut(draft, 1, max(64, -(-elements // 16 // 64) * 64))
    name = f"{result.name}.combine"
    context.emit(_compute_set(name, nest_of(draft, 1), whole, read, [result], op_name))


def _compute_set(
    name: str, nest: Nest, plan: Cut, sources: list[Buffer], results: list[Buffer], op_name: str
) -> ComputeSet:
    """Encodes the parameter block and states what each unit reads and writes."""
    draft = plan.draft
    parameters = np.zeros(nest.parameter_words, np.int64)
    parameters[0] = plan.grain
    parameters[1 : 1 + nest.rank] = draft.extents
    relocations: list[Relocation] = []
    reads: list[Span] = []
    writes: list[Span] = []
    for access, reached in enumerate(draft.reached):
        at = nest.access_word(access)
        parameters[at + 1 : at + 1 + nest.rank] = reached.strides
        if reached.source is None:
            parameters[at] = reached.offset
            continue
        buffer = (results if reached.writes else sources)[reached.source]
        relocations.append(Relocation(at, buffer, reached.offset))
        if reached.partial and nest.splits_reduction:
            pitch = buffer.shape.bytes // plan.units
            parameters[at + 1 + nest.rank] = pitch
            per_unit = buffer.shape.elements // plan.units
            writes.append(Span(buffer, Partition(per_unit, plan.units, 1)))
            continue
        span = Span(buffer, _partition(plan, reached, buffer))
        (writes if reached.writes else reads).append(span)
    effort = Effort(elements=draft.count_operations(), element_type=_widest(draft))
    return ComputeSet(name, nest, parameters, relocations, plan.units, reads, writes, effort, 0, op_name)


def _partition(plan: Cut, reached: Reached, buffer: Buffer) -> Partition | None:
    """The piece of the array each unit touches, where that is a piece of one dimension of it."""
    stride, item = reached.strides[plan.loop], buffer.shape.dtype.itemsize
    extent = plan.draft.extents[plan.loop]
    if stride <= 0 or stride % item or reached.offset:
        return None
    inner = stride // item
    span = inner * extent
    others = [
        (s, e) for d, (s, e) in enumerate(zip(reached.strides, plan.draft.extents, strict=True)) if d != plan.loop
    ]
    for other, count in others:
        # Loops inside the partition must stay inside one index of it, loops outside move by whole rounds of it.
        inside = 0 <= other * (count - 1) < stride
        if not inside and other % (span * item):
            return None
    if sum(max(0, s) * (c - 1) for s, c in others if s < stride) >= stride:
        return None
    return Partition(inner, extent, plan.grain)


def _widest(draft: Draft) -> str:
    types = [r.element_type for r in draft.reached if r.source is not None]
    return max(types, key=lambda t: Shape(t).dtype.itemsize, default="f32")
