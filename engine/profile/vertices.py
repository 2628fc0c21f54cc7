"""Cycles of element-wise vertices on one tile, from the table of operations."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.codelets.transpose import transpose
from engine.emit.nest import Apply, Body, Constant, Input, Nest, Node
from engine.ir.opcodes import LINEAR_ALGEBRA, OPCODES
from engine.program.program import Buffer, ComputeSet, Span, VertexCycles
from engine.program.work.codelet_work import has_codelet
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.target import DATA, Target

RANDOM_BITS = "rng-bit-generator"
HALF = frozenset({"f16", "bf16"})
FLOATS = frozenset({"f32", "f64", "c64", "c128"})


@dataclass(frozen=True, slots=True)
class VertexWork:
    """Work of a vertex at each of `points`: operations as (opcode, kind), kind "f32", "f16" or "integer".

    `form` distinguishes vertices of a single operation: "unary", "scalar" (a binary operation with one loop-invariant
    operand), "random" or "" (all others).
    """

    points: int
    operations: tuple[tuple[str, str], ...]
    form: str = ""


def kind_of(element_type: str) -> str:
    """The table's column for a type. The chip has no 64-bit types and no bf16: they count as the nearest type."""
    if element_type in HALF:
        return "f16"
    return "f32" if element_type in FLOATS else "integer"


@cache
def tables() -> dict[str, Any]:
    """The table of cycles in data/cycles.toml, as parsed."""
    return tomllib.loads((DATA / "cycles.toml").read_text())


@cache
def _row(opcode: str) -> dict[str, Any] | None:
    """The row of an HLO opcode, or of a vertex that has no opcode; None if it has none."""
    row, rows = OPCODES.get(opcode), tables()["operations"]
    found: dict[str, Any] | None = rows.get((row and row.cycles) or opcode)
    return found


def is_listed(opcode: str) -> bool:
    """Whether an opcode has a row in the table, or a plan in engine.profile.factorization."""
    return _row(opcode) is not None or opcode in LINEAR_ALGEBRA


def loop_of(opcode: str, kind: str) -> tuple[int, int]:
    """Cycles and elements of one iteration of the loop; an opcode that is not listed takes the assumed row."""
    row = _row(opcode) or tables()["assumed"]
    cycles, elements = row.get(kind, row["f32"])
    return cycles, elements


def vertex_cycles(operations: tuple[tuple[str, str], ...], elements: int, target: Target, form: str = "") -> int:
    """Cycles of one tile that applies all operations to each of `elements`, distributed among its workers.

    supervisor + workers * (prologue + sum over operations of iterations * cycles): one vertex, as popops::map fuses.
    """
    if elements <= 0:
        return 0
    supervisor, slots = prologue(operations, form)
    share = -(-elements // target.workers_per_tile)
    for opcode, kind in operations:
        cycles, per_iteration = loop_of(opcode, kind)
        slots += -(-share // per_iteration) * cycles
    return int(supervisor + target.workers_per_tile * slots)


def declared_cycles(vertex: VertexCycles, rows: int, target: Target) -> int:
    """Cycles of one tile with `rows` rows of a user's vertex, distributed among its workers: linear in the rows."""
    share = -(-rows // target.workers_per_tile)
    more = (vertex.many - vertex.one) * (share - 1) / max(1, vertex.grain - 1)
    return int(tables()["overhead"]["supervisor"] + target.workers_per_tile * (vertex.one + more))


def prologue(operations: tuple[tuple[str, str], ...], form: str = "") -> tuple[int, int]:
    """Cycles of the supervisor, and issue slots of each worker before its loop."""
    overhead = tables()["overhead"]
    if form == "unary" and operations:
        slow = (_row(operations[0][0]) or {}).get("slow_unary", False)
        return overhead["unary_supervisor"], overhead["slow_unary_worker" if slow else "unary_worker"]
    if form == "scalar":
        return overhead["supervisor"], overhead["scalar_worker"]
    if form == "random":
        return overhead["supervisor"], tables()["random"]["worker"]
    half = bool(operations) and all(kind == "f16" for _, kind in operations)
    return overhead["supervisor"], overhead["worker_f16" if half else "worker_f32"]


def pooling_cycles(kind: str, points: int, row: int, target: Target) -> int:
    """Cycles of one tile of a pooling that combines `points` elements, `row` of them in each row of a tap."""
    table, lanes = tables()["pooling"], target.vector_bytes // (2 if kind == "f16" else 4)
    share = -(-points // target.workers_per_tile)
    rows = -(-share // max(1, row))
    slots = rows * table["row"] + -(-share // lanes) * table["vector"]
    supervisor, worker = prologue((("reduce", kind),))
    return supervisor + target.workers_per_tile * (worker + slots)


def work_of(compute_set: ComputeSet, random_bits: frozenset[Buffer] = frozenset()) -> VertexWork:
    """The points of a compute set and the operations at each; a nest without operations is a copy.

    Operations that turn `random_bits` into random numbers count as the chip's vertex of that distribution.
    """
    loop = compute_set.work
    if isinstance(loop, FusedLoop):
        return VertexWork(loop.points, _operations(compute_set, loop, random_bits), _form(loop))
    work_estimate = compute_set.work_estimate
    points = max(work_estimate.elements.values(), default=0)
    kind = kind_of(work_estimate.element_type)
    if not work_estimate.elements:
        return VertexWork(
            max((span.buffer.shape.elements for span in compute_set.writes), default=0), (("copy", kind),)
        )
    if has_codelet(compute_set.work, transpose):
        return VertexWork(points, (("turn", kind),))
    form = "random" if RANDOM_BITS in work_estimate.elements else ""
    return VertexWork(points, tuple((opcode, kind) for opcode in work_estimate.elements), form)


def inputs_of(compute_set: ComputeSet, loop: FusedLoop) -> dict[int, Span]:
    """Spans that a fused loop reads, by the operand's number."""
    written, spans = loop.written, iter(compute_set.reads)
    return {k: next(spans) for k, o in enumerate(loop.operands) if k not in written and isinstance(o, Strided)}


def _form(loop: FusedLoop) -> str:
    """ "unary" or "scalar" for a fused loop of one operation with a vertex of its own in poplibs, else ""."""
    nest = loop.nest
    applied = [node for node in nest.nodes if isinstance(node, Apply)]
    if len(applied) != 1 or nest.reductions:
        return ""
    if len(applied[0].operands) == 1:
        return "unary"
    scalars = 0
    for operand in applied[0].operands:
        node = nest.nodes[operand]
        if isinstance(node, Input):
            scalars += not any(loop.operands[node.access].strides)
        else:
            scalars += isinstance(node, Constant)
    return "scalar" if scalars == 1 and len(applied[0].operands) == 2 else ""


def _operations(
    compute_set: ComputeSet, loop: FusedLoop, random_bits: frozenset[Buffer]
) -> tuple[tuple[str, str], ...]:
    nest = loop.nest
    bits = (
        {a for a, span in inputs_of(compute_set, loop).items() if span.buffer in random_bits} if random_bits else set()
    )
    found = _drawn(nest, bits) if bits else _applied(nest.nodes)
    for reduction in nest.reductions:
        if isinstance(reduction.combine, Body):
            found += _applied(reduction.combine.nodes)
        else:
            found.append(("reduce", kind_of(reduction.element_types[0])))
    if not found:
        written = nest.accesses[nest.stores[0].access] if nest.stores else nest.accesses[0]
        strided = any(nest.accesses[a].inner == "strided" for a in inputs_of(compute_set, loop))
        return (("turn" if strided else "copy", kind_of(written.element_type)),)
    return tuple(found)


def _applied(nodes: tuple[Node, ...]) -> list[tuple[str, str]]:
    return [_operation(node) for node in nodes if isinstance(node, Apply)]


def _operation(node: Apply) -> tuple[str, str]:
    # The last operand of a select is data, its first a predicate.
    at = -1 if node.operation.opcode == "select" else 0
    return node.operation.opcode, kind_of(node.operation.operand_types[at])


def _drawn(nest: Nest, bits: set[int]) -> list[tuple[str, str]]:
    """The operations, with those on only random bits and constants replaced by one vertex of a distribution."""
    random: set[int] = set()
    fixed: set[int] = set()
    inside: list[Apply] = []
    rest: list[tuple[str, str]] = []
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Input) and node.access in bits:
            random.add(number)
        elif isinstance(node, Constant):
            fixed.add(number)
        elif isinstance(node, Apply) and set(node.operands) <= random | fixed and random & set(node.operands):
            random.add(number)
            inside.append(node)
        elif isinstance(node, Apply):
            rest.append(_operation(node))
    opcodes = {node.operation.opcode for node in inside}
    if not inside:
        return rest
    if opcodes & {"log", "log-plus-one", "sqrt", "cosine", "sine"}:
        return [("normal", kind_of(inside[-1].operation.element_type)), *rest]
    last = inside[-1].operation
    # The bits are charged to the compute set that generates them: a uniform distribution costs no more.
    return [("bernoulli", "f32"), *rest] if last.opcode == "compare" else rest
