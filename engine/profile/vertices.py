"""Cycles of element-wise vertices on one tile, from the table of operations."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.emit.nest import Apply, Body, Nest, Node
from engine.program.program import ComputeSet
from engine.target import DATA, Target

HALF = frozenset({"f16", "bf16"})
FLOATS = frozenset({"f32", "f64", "c64", "c128"})


@dataclass(frozen=True, slots=True)
class Work:
    """What a vertex does at each of `points`: operations as (opcode, kind), kind "f32", "f16" or "integer"."""

    points: int
    operations: tuple[tuple[str, str], ...]


def kind_of(element_type: str) -> str:
    """The column of the table. The chip has no 64-bit types and no bf16: they count as their nearest neighbours."""
    if element_type in HALF:
        return "f16"
    return "f32" if element_type in FLOATS else "integer"


@cache
def tables() -> dict[str, Any]:
    """The whole table of cycles, as it is."""
    return tomllib.loads((DATA / "cycles.toml").read_text())


@cache
def _rows() -> dict[str, dict[str, Any]]:
    return {opcode: row for row in tables()["operations"].values() for opcode in row["opcodes"]}


def is_listed(opcode: str) -> bool:
    """Whether the table has a row of its own for an opcode."""
    return opcode in _rows()


def loop_of(opcode: str, kind: str) -> tuple[int, int]:
    """Cycles and elements of one turn of the loop; an opcode that is not listed takes the assumed row."""
    row = _rows().get(opcode, tables()["assumed"])
    cycles, elements = row.get(kind, row["f32"])
    return cycles, elements


def vertex_cycles(operations: tuple[tuple[str, str], ...], elements: int, target: Target) -> int:
    """Cycles of one tile that applies all operations to each of `elements`, shared out among its workers.

    supervisor + workers * (prologue + sum over operations of turns * cycles): one vertex, as popops::map fuses.
    """
    if elements <= 0:
        return 0
    overhead = tables()["overhead"]
    half = bool(operations) and all(kind == "f16" for _, kind in operations)
    share = -(-elements // target.workers_per_tile)
    slots = overhead["worker_f16" if half else "worker_f32"]
    for opcode, kind in operations:
        cycles, per_turn = loop_of(opcode, kind)
        slots += -(-share // per_turn) * cycles
    return int(overhead["supervisor"] + target.workers_per_tile * slots)


def work_of(compute_set: ComputeSet) -> Work:
    """The points of a compute set and the operations at each; a nest that applies none copies."""
    nest = compute_set.codelet
    if isinstance(nest, Nest):
        points = 1
        for extent in compute_set.parameters[1 : 1 + nest.rank]:
            points *= int(extent)
        return Work(points, _operations(nest))
    effort = compute_set.effort
    points = max(effort.elements.values(), default=0)
    kind = kind_of(effort.element_type)
    if not effort.elements:
        return Work(max((span.buffer.shape.elements for span in compute_set.writes), default=0), (("copy", kind),))
    return Work(points, tuple((opcode, kind) for opcode in effort.elements))


def _operations(nest: Nest) -> tuple[tuple[str, str], ...]:
    found = _applied(nest.nodes)
    for reduction in nest.reductions:
        if isinstance(reduction.combine, Body):
            found += _applied(reduction.combine.nodes)
        else:
            found.append(("reduce", kind_of(reduction.element_types[0])))
    if not found:
        written = nest.accesses[nest.stores[0].access] if nest.stores else nest.accesses[0]
        return (("copy", kind_of(written.element_type)),)
    return tuple(found)


def _applied(nodes: tuple[Node, ...]) -> list[tuple[str, str]]:
    return [
        (node.operation.opcode, kind_of(node.operation.operand_types[0])) for node in nodes if isinstance(node, Apply)
    ]
