"""Compute sets of drafts: a fused loop, divided into units, and a second one where sums are split."""

from __future__ import annotations

from dataclasses import replace

from engine.ir import Shape
from engine.program.builder import ProgramBuilder
from engine.program.nest import Apply, Input, Nest, Node, Reduction
from engine.program.nests import Draft, Reached, nest_of
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span, WorkEstimate
from engine.program.units import UnitCut, cut
from engine.program.work.copy import Copy
from engine.program.work.fused_loop import Count, FusedLoop, Strided


def run_draft(
    builder: ProgramBuilder,
    name: str,
    draft: Draft,
    sources: list[Buffer],
    results: list[Buffer],
    op_name: str,
    elidable: bool | None = None,
) -> None:
    """Emits the compute set (or two) of a draft that reads `sources` and writes `results`; none if the draft is empty.

    `elidable` is given for copies.
    """
    if 0 in draft.extents:
        return
    plan = cut(draft, sources, results, builder.partitions, builder.rows)
    nest = nest_of(plan.draft, plan.loop)
    if not nest.splits_reduction:
        builder.emit(_compute_set(name, nest, plan, sources, results, op_name, elidable))
        return
    _emit_split(builder, name, plan, sources, results, op_name)


def _emit_split(
    builder: ProgramBuilder, name: str, plan: UnitCut, sources: list[Buffer], results: list[Buffer], op_name: str
) -> None:
    """Emits a compute set whose units reduce their slices to partial results, and one that combines these in order."""
    draft = plan.draft
    partials: dict[int, Buffer] = {}
    reached = list(draft.reached)
    for reduction in draft.reductions:
        access, kind = reduction.accesses[0], reduction.element_types[0]
        whole = reached[access]
        assert whole.source is not None
        shape = results[whole.source].shape
        wider = Shape(kind).dtype.itemsize // shape.dtype.itemsize
        partials[whole.source] = Buffer(
            f"{results[whole.source].name}.partial", Shape(kind, (plan.units, *shape.dimensions))
        )
        reached[access] = replace(whole, element_type=kind, strides=tuple(s * wider for s in whole.strides))
    plan = replace(plan, draft=replace(draft, reached=reached))
    written = [partials.get(k, buffer) for k, buffer in enumerate(results)]
    builder.emit(_compute_set(name, nest_of(plan.draft, plan.loop), plan, sources, written, op_name))
    for reduction in draft.reductions:
        number = reached[reduction.accesses[0]].source
        assert number is not None
        _combine(builder, plan, reduction, partials[number], results[number], sources, op_name)


def _combine(
    builder: ProgramBuilder,
    plan: UnitCut,
    reduction: Reduction,
    partial: Buffer,
    result: Buffer,
    sources: list[Buffer],
    op_name: str,
) -> None:
    """Combines partial results [units, elements] in order, beginning with the initial value."""
    elements = result.shape.elements
    inside, outside = partial.shape.dtype.itemsize, result.shape.dtype.itemsize
    reached = [
        Reached(partial.shape.element_type, 0, 0, (elements * inside, inside)),
        Reached(result.shape.element_type, 0, 0, (0, outside), writes=True, partial=True),
    ]
    nodes: list[Node] = [Input(0)]
    read = [partial]
    start = _initial(plan.draft, reduction.initial[0], nodes, reached, read, sources)
    combined = replace(reduction, values=(0,), initial=(start,), accesses=(1,))
    draft = Draft((plan.units, elements), (True, False), nodes, reached, reductions=[combined])
    grain = max(64, -(-elements // 16 // 64) * 64) if elements > 4096 else max(1, elements)
    whole = UnitCut(draft, 1, grain)
    name = f"{result.name}.combine"
    builder.emit(_compute_set(name, nest_of(draft, 1), whole, read, [result], op_name))


def _initial(
    draft: Draft, number: int, nodes: list[Node], reached: list[Reached], read: list[Buffer], sources: list[Buffer]
) -> int:
    """Copies the nodes that compute a reduction's initial value, with the scalars they read; returns its number."""
    node = draft.nodes[number]
    if isinstance(node, Input):
        scalar = draft.reached[node.access]
        assert scalar.source is not None
        read.append(sources[scalar.source])
        reached.append(Reached(scalar.element_type, len(read) - 1, scalar.offset, (0, 0)))
        node = Input(len(reached) - 1)
    elif isinstance(node, Apply):
        operands = tuple(_initial(draft, o, nodes, reached, read, sources) for o in node.operands)
        node = Apply(node.operation, operands)
    nodes.append(node)
    return len(nodes) - 1


def _compute_set(
    name: str,
    nest: Nest,
    plan: UnitCut,
    sources: list[Buffer],
    results: list[Buffer],
    op_name: str,
    elidable: bool | None = None,
) -> ComputeSet:
    """Builds the compute set, with the spans that each unit reads and writes."""
    draft = plan.draft
    operands: list[Strided | Count] = []
    reads: list[Span] = []
    writes: list[Span] = []
    for reached in draft.reached:
        if reached.source is None:
            operands.append(Count(reached.offset, reached.strides))
            continue
        buffer = (results if reached.writes else sources)[reached.source]
        split = reached.partial and nest.splits_reduction
        pitch = buffer.shape.bytes // plan.units if split else 0
        operands.append(Strided(Address(buffer, reached.offset), reached.strides, pitch))
        if split:
            per_unit = buffer.shape.elements // plan.units
            writes.append(Span(buffer, Partition(per_unit, plan.units, 1)))
            continue
        span = Span(buffer, _partition(plan, reached, buffer))
        (writes if reached.writes else reads).append(span)
    parts = nest, tuple(draft.extents), plan.grain, tuple(operands)
    work = FusedLoop(*parts) if elidable is None else Copy(*parts, elidable=elidable)
    types = [r.element_type for r in draft.reached if r.source is not None]
    widest = max(types, key=lambda t: Shape(t).dtype.itemsize, default="f32")
    work_estimate = WorkEstimate(elements=draft.count_operations(), element_type=widest)
    return ComputeSet(name, work, plan.units, reads, writes, work_estimate, op_name, origins=draft.origins)


def _partition(plan: UnitCut, reached: Reached, buffer: Buffer) -> Partition | None:
    """The slice of the array that each unit touches, if it is a slice along one dimension."""
    stride, item = reached.strides[plan.loop], buffer.shape.dtype.itemsize
    extent = plan.draft.extents[plan.loop]
    if stride <= 0 or stride % item or reached.offset < 0:
        return None
    inner = stride // item
    span = inner * extent
    others = [
        (s, e) for d, (s, e) in enumerate(zip(reached.strides, plan.draft.extents, strict=True)) if d != plan.loop
    ]
    for other, count in others:
        # Loops inside the partition must stay within one of its indices; loops outside move by multiples of its extent.
        inside = 0 <= other * (count - 1) < stride
        if not inside and other % (span * item):
            return None
    if reached.offset + sum(max(0, s) * (c - 1) for s, c in others if s < stride) >= stride:
        return None
    return Partition(inner, extent, plan.grain)


def written_partition(plan: UnitCut, buffer: Buffer) -> Partition | None:
    """The slice that each unit writes, of the only array that a draft writes."""
    (reached,) = (each for each in plan.draft.reached if each.writes)
    return _partition(plan, reached, buffer)
