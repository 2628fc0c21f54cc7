"""Cycles of element-wise vertices on one tile, from the table of operations."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from math import prod
from typing import Any

from engine.frozen import frozen
from engine.ir.opcodes import LINEAR_ALGEBRA, OPCODES
from engine.profile.compounds import Charged, Term, Terms, charged
from engine.program.nest import Apply, Body, Constant, Index, Input, Nest, Node
from engine.program.program import Buffer, ComputeSet, Span, VertexCycles
from engine.program.work.copy import TransposeWork
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.target import DATA, Target

RANDOM_BITS = "rng-bit-generator"
HALF = frozenset({"f16", "bf16"})
FLOATS = frozenset({"f32", "f64", "c64", "c128"})


@frozen
class VertexWork:
    """Work of a vertex at each of `points`: operations as (opcode, kind), where kind is "f32", "f16" or "integer".

    `form` distinguishes vertices of a single operation: "unary", "scalar" (a binary operation with one loop-invariant
    operand), "random" or "" (all others). `smaller` has operations on smaller arrays that are broadcast afterwards, as
    (opcode, kind, number of elements).
    """

    points: int
    operations: tuple[tuple[str, str], ...]
    form: str = ""
    smaller: tuple[tuple[str, str, int], ...] = ()


@frozen
class LibraryFacts:
    """Facts about a whole program that decide which vertices of a chip's library its compute sets are.

    `random` are arrays of random bits, and masks made of them. The compute sets `drawn` generate bits for vertices that
    make their own; `keys` compute what only generators read; arrays that are `absent` exist for these alone. `halves`
    are the nodes of fused loops that a chip computes in 16-bit floats (engine.profile.library_types),
    `exponential_sums` the divisors of softmax.
    """

    random: frozenset[Buffer] = frozenset()
    drawn: frozenset[ComputeSet] = frozenset()
    keys: frozenset[ComputeSet] = frozenset()
    absent: frozenset[Buffer] = frozenset()
    halves: Mapping[ComputeSet, frozenset[int]] = field(default_factory=dict)
    exponential_sums: frozenset[Buffer] = frozenset()


PLAIN = LibraryFacts()


def kind_of(element_type: str) -> str:
    """The table's column for a type. 64-bit types and bf16, which a chip lacks, count as the nearest type."""
    if element_type in HALF:
        return "f16"
    return "f32" if element_type in FLOATS else "integer"


@cache
def tables() -> dict[str, Any]:
    """The table of cycles in data/cycles.toml, as parsed."""
    return tomllib.loads((DATA / "cycles.toml").read_text())


@cache
def _row(opcode: str) -> dict[str, Any] | None:
    """The row of an HLO opcode, or of a vertex that has no opcode; None if the table has no such row."""
    row, rows = OPCODES.get(opcode), tables()["operations"]
    found: dict[str, Any] | None = rows.get((row and row.cycles) or opcode)
    return found


def is_listed(opcode: str) -> bool:
    """Whether an opcode has a row in the table, or a plan in engine.profile.factorization."""
    return _row(opcode) is not None or opcode in LINEAR_ALGEBRA


def loop_of(opcode: str, kind: str) -> tuple[int, int]:
    """Cycles and elements of one iteration of a vertex's loop; an unlisted opcode takes the assumed row."""
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


def smaller_cycles(operations: tuple[tuple[str, str, int], ...], target: Target) -> int:
    """Cycles of operations on smaller arrays, each spread over all tiles, in the loops of another vertex."""
    cycles = 0
    for opcode, kind, elements in operations:
        slots, per_iteration = loop_of(opcode, kind)
        share = -(-elements // (target.tiles * target.workers_per_tile))
        cycles += target.workers_per_tile * -(-share // per_iteration) * slots
    return cycles


def declared_cycles(vertex: VertexCycles, rows: int, target: Target) -> int:
    """Cycles of one tile that distributes `rows` rows of a user's vertex among its workers: linear in the rows."""
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


def work_of(compute_set: ComputeSet, library: LibraryFacts = PLAIN) -> VertexWork:
    """The points of a compute set and the operations at each; a nest without operations is a copy.

    Operations that make numbers of random bits count as the chip's vertex of that distribution.
    """
    loop = compute_set.work
    if isinstance(loop, FusedLoop):
        operations, smaller = _operations(compute_set, loop, library)
        return VertexWork(loop.points, operations, _form(loop), smaller)
    work_estimate = compute_set.work_estimate
    points = max(work_estimate.elements.values(), default=0)
    kind = kind_of(work_estimate.element_type)
    if not work_estimate.elements:
        return VertexWork(
            max((span.buffer.shape.elements for span in compute_set.writes), default=0), (("copy", kind),)
        )
    if isinstance(compute_set.work, TransposeWork):
        return VertexWork(points, (("transpose", kind),))
    form = "random" if RANDOM_BITS in work_estimate.elements else ""
    made = () if compute_set in library.drawn else work_estimate.elements
    return VertexWork(points, tuple((opcode, kind) for opcode in made), form)


def inputs_of(compute_set: ComputeSet, loop: FusedLoop) -> dict[int, Span]:
    """The spans that a fused loop reads, by the operand's number."""
    written, spans = loop.written, iter(compute_set.reads)
    return {k: next(spans) for k, o in enumerate(loop.operands) if k not in written and isinstance(o, Strided)}


def buffers_of(compute_set: ComputeSet, loop: FusedLoop) -> dict[int, Buffer]:
    """The arrays of a fused loop, by the operand's number."""
    found = {number: span.buffer for number, span in inputs_of(compute_set, loop).items()}
    for number in loop.written:
        address = getattr(loop.operands[number], "address", None)
        if address is not None:
            found[number] = address.buffer
    return found


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
    compute_set: ComputeSet, loop: FusedLoop, library: LibraryFacts
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, int], ...]]:
    """The operations at each point, and those on smaller arrays."""
    nest, halves = loop.nest, library.halves.get(compute_set, frozenset())
    inputs = inputs_of(compute_set, loop) if library.random or library.exponential_sums else {}
    bits = {a for a, span in inputs.items() if span.buffer in library.random}
    sums = {a for a, span in inputs.items() if span.buffer in library.exponential_sums}
    terms, sizes = terms_of(nest), _sizes(loop)
    reduced = {number for reduction in nest.reductions for number in (*reduction.values, *reduction.initial)}
    vertices = charged(terms, tuple(sorted(reduced | {store.node for store in nest.stores})))
    found, vertices = _drawn(terms, vertices, bits) if bits else ([], vertices)
    smaller = []
    widened = _widened(vertices, terms, reduced - {store.node for store in nest.stores})
    for vertex in vertices:
        if vertex.term in widened:
            continue
        operation = _operation(terms, vertex, halves, sizes, sums)
        if operation is None:
            continue
        if sizes[vertex.term] < loop.points:
            smaller.append((*operation, sizes[vertex.term]))
        else:
            found.append(operation)
    for number, reduction in enumerate(nest.reductions):
        if isinstance(reduction.combine, Body):
            found += [_own(_term(node)) for node in reduction.combine.nodes if isinstance(node, Apply)]
        else:
            value = widened.get(reduction.values[0], terms[reduction.values[0]].element_type)
            found.append(("reduce", "f16" if -1 - number in halves else kind_of(value)))
    if not found and not smaller:
        written = nest.accesses[nest.stores[0].access] if nest.stores else nest.accesses[0]
        strided = any(nest.accesses[a].inner == "strided" for a in inputs_of(compute_set, loop))
        found = [("transpose" if strided else "copy", kind_of(written.element_type))]
    return tuple(found), tuple(smaller)


def _widened(vertices: tuple[Charged, ...], terms: Terms, reduced: set[int]) -> dict[int, str]:
    """The conversions to fp32 that only reductions read, with the type before: reductions of fp16 add in fp32."""
    read = {operand for vertex in vertices for operand in vertex.operands}
    conversions = (v.term for v in vertices if v.opcode == "convert" and v.term in reduced - read)
    before = {number: terms[number].operand_types[0] for number in conversions if terms[number].element_type == "f32"}
    return {number: kind for number, kind in before.items() if kind in HALF}


def _sizes(loop: FusedLoop) -> list[int]:
    """The number of values of each node of a nest, which varies along some of the loops only."""
    nest, varying = loop.nest, list[frozenset[int]]()
    for node in nest.nodes:
        if isinstance(node, Input | Index):
            strides = loop.operands[node.access].strides
            varying.append(frozenset(d for d, stride in enumerate(strides) if stride))
        else:
            varying.append(frozenset[int]().union(*(varying[o] for o in getattr(node, "operands", ()))))
    return [prod(loop.extents[d] for d in each) for each in varying]


def _operation(
    terms: Terms, vertex: Charged, halves: frozenset[int], sizes: list[int], sums: set[int]
) -> tuple[str, str] | None:
    """Opcode and kind of a vertex; None for a conversion that a vertex of 16-bit floats does not need."""
    opcode, kind = _own(terms[vertex.term])
    if vertex.opcode != opcode:
        return vertex.opcode, "f16" if vertex.term in halves else kind_of(terms[vertex.term].element_type)
    if opcode == "divide" and kind != "integer":
        divisor = before_conversions(terms, vertex.operands[1])
        if divisor.number is not None or divisor.access in sums:
            opcode = "multiply"  # by the inverse: XLA's of a constant, the library's softmax of a sum
    if vertex.term not in halves:
        return opcode, kind
    if opcode == "convert":
        return None
    if opcode == "divide" and sizes[vertex.operands[1]] < sizes[vertex.term]:
        opcode = "multiply"
    return opcode, "f16"


def before_conversions(terms: Terms, number: int) -> Term:
    """The term of which a term is a conversion, or the term itself."""
    while terms[number].opcode == "convert":
        number = terms[number].operands[0]
    return terms[number]


def _own(term: Term) -> tuple[str, str]:
    # A select's first operand is a predicate, its last is data.
    at = -1 if term.opcode == "select" else 0
    return term.opcode, kind_of(term.operand_types[at])


@lru_cache(maxsize=4096)
def terms_of(nest: Nest) -> Terms:
    """The nodes of a nest as terms, by number."""
    return tuple(_term(node, nest) for node in nest.nodes)


def _term(node: Node, nest: Nest | None = None) -> Term:
    if isinstance(node, Apply):
        operation = node.operation
        direction = str(dict(operation.attributes).get("direction", ""))
        return Term(
            operation.opcode, operation.element_type, operation.operand_types, node.operands, None, -1, direction
        )
    if isinstance(node, Constant):
        is_float = node.element_type in HALF | {"f32", "f64"}
        return Term("", node.element_type, number=float(node.value) if is_float else 0.0)
    if isinstance(node, Input) and nest is not None:
        return Term("", nest.accesses[node.access].element_type, access=node.access)
    return Term("", getattr(node, "element_type", ""), operands=getattr(node, "operands", ()))


def random_terms(terms: Terms, bits: Collection[int]) -> set[int]:
    """The terms that depend on random bits, which are the arrays numbered `bits`, and on constants alone."""
    random = {number for number, term in enumerate(terms) if term.access in bits}
    fixed = {number for number, term in enumerate(terms) if term.number is not None}
    for number, term in enumerate(terms):
        if term.opcode and set(term.operands) <= random | fixed and random & set(term.operands):
            random.add(number)
    return random


def _drawn(
    terms: Terms, vertices: tuple[Charged, ...], bits: set[int]
) -> tuple[list[tuple[str, str]], tuple[Charged, ...]]:
    """Replace operations on random bits and constants alone by one vertex of a distribution; keep all others.

    A dropout is one vertex, which generates its mask again in the backward pass.
    """
    random = random_terms(terms, bits)
    inside = [terms[number] for number in sorted(random) if terms[number].opcode]
    rest = {vertex.term: vertex for vertex in vertices if vertex.term not in random}
    for chosen in [v for v in rest.values() if v.opcode == "select" and v.operands[0] in random]:
        if 0.0 in {terms[o].number for o in chosen.operands[1:]}:
            for scale in _scales(terms, chosen, tuple(rest.values())):
                del rest[scale]
            rest[chosen.term] = Charged(chosen.term, "dropout", chosen.operands[1:])
    found = []
    if inside and all(vertex.opcode != "dropout" for vertex in rest.values()):
        if {term.opcode for term in inside} & {"log", "log-plus-one", "sqrt", "cosine", "sine"}:
            found.append(("normal", kind_of(inside[-1].element_type)))
        elif inside[-1].opcode == "compare":
            found.append(("bernoulli", "f32"))
        # The compute set that generates the bits is charged for them: a uniform distribution costs no more.
    return found, tuple(rest.values())


def _scales(terms: Terms, chosen: Charged, vertices: Sequence[Charged]) -> list[int]:
    """The product with a constant before or after the selection of a dropout; none if other operations need it."""
    for vertex in vertices:
        if vertex.opcode == "multiply" and any(terms[o].number is not None for o in vertex.operands):
            first, last = (vertex, chosen) if vertex.term in chosen.operands else (chosen, vertex)
            if first.term in last.operands and sum(first.term in each.operands for each in vertices) == 1:
                return [vertex.term]
    return []
