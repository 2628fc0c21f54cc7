"""Estimates of the always live bytes that are not arrays: code, vertex state and exchange code."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np

from engine.profile.categories import CODE, VERTEX_STATE
from engine.profile.mapping import TileMapping, spread
from engine.profile.superstep_cost import SuperstepCost
from engine.program.nest import Apply, Body, Nest
from engine.program.program import ComputeSet
from engine.program.work.fused_loop import FusedLoop
from engine.target import DATA, Target

Stacks = tuple[int | None, int | None]
Family = Literal["element_wise", "reduce", "product", "movement", "other"]


@cache
def sizes() -> dict[str, dict[str, Any]]:
    """The table of estimates in data/memory.toml, as parsed."""
    return tomllib.loads((DATA / "memory.toml").read_text())


def family_of(compute_set: ComputeSet) -> Family:
    """The family of the codelet that a compute set has on a chip."""
    if compute_set.work_estimate.multiply_adds:
        return "product"
    loop = compute_set.work
    if isinstance(loop, FusedLoop):
        return "reduce" if loop.nest.reductions else "element_wise" if _operations(loop.nest) else "movement"
    return "other" if compute_set.work_estimate.elements else "movement"


def code_bytes(compute_set: ComputeSet) -> int:
    """Bytes of a codelet's code, which a tile holds once for all of the codelet's vertices."""
    table, family = sizes()["code"], family_of(compute_set)
    applied = _operations(compute_set.work.nest) if isinstance(compute_set.work, FusedLoop) else 0
    return int(table[family] + applied * table["operation"])


def fixed_bytes(
    compute_sets: Sequence[ComputeSet],
    supersteps: Sequence[SuperstepCost],
    positions: Sequence[TileMapping],
    target: Target,
    with_code: bool = True,
    stacks: Stacks = (None, None),
) -> dict[str, np.ndarray]:
    """Bytes, int64 [tiles], of "code" and "vertex state"; `positions` are the tiles of each compute set.

    `stacks` are the bytes of the supervisor's stack and of each worker's; None for the estimate.
    Without code ("compile_ipu_code" of Poplar's IPU model) only exchanges and the data of vertices count: neither
    codelets nor the control program are compiled. The calls of an outlined body share its compute sets, with the
    exchange code and the vertices of the first call.
    """
    table = sizes()
    always, control, exchange, state = (table[name] for name in ("always", "control", "exchange_code", "vertex_state"))
    code = np.full(target.tiles, stack_bytes(target, stacks) + always["runtime"] if with_code else 0, np.int64)
    covered: dict[ComputeSet, np.ndarray] = {}
    vertices = np.zeros(target.tiles, np.int64)
    tiles_of: dict[Any, tuple[int, np.ndarray]] = {}
    for compute_set, step, position in zip(compute_sets, supersteps, positions, strict=True):
        body = compute_set.of_body or compute_set
        if body in covered:
            covered[body][position.numbers()] = True
            continue
        work_estimate, vertex = compute_set.work_estimate, compute_set.work.vertex
        key = (work_estimate.element_type, "product") if work_estimate.multiply_adds else vertex
        if key not in tiles_of:
            tiles_of[key] = code_bytes(compute_set), np.zeros(target.tiles, bool)
        covered[body] = tiles_of[key][1]
        covered[body][position.numbers()] = True
        code += control["bytes_per_compute_set"] * with_code
        position.sized(state.get(family_of(compute_set), state["other"])).add_to(vertices)
        if step.received_bytes:
            sources = _sources(compute_set, step, target)
            position.sized(exchange["bytes_per_exchange"] + sources * exchange["bytes_per_source"]).add_to(code)
    for size, where in tiles_of.values() if with_code else ():
        code += size * where
    return {CODE: code, VERTEX_STATE: vertices}


def stack_bytes(target: Target, stacks: Stacks) -> int:
    """Bytes of all stacks of a tile. None in place of a size is an equal part of the estimate."""
    estimate, threads = int(sizes()["always"]["stack"]), target.workers_per_tile + 1
    if stacks == (None, None):
        return estimate
    supervisor, worker = (estimate // threads if each is None else each for each in stacks)
    return supervisor + target.workers_per_tile * worker


def _sources(compute_set: ComputeSet, step: SuperstepCost, target: Target) -> int:
    """Number of tiles from which a tile receives: as many of the holders as its fraction of all bytes read."""
    shapes = [span.buffer.shape for span in compute_set.reads]
    holders = min(target.tiles, sum(spread(shape.elements, shape.dtype.itemsize, target).tiles for shape in shapes))
    return min(holders, -(-step.received_bytes * holders // max(1, sum(shape.bytes for shape in shapes))))


def _operations(nest: Nest) -> int:
    bodies = [r.combine.nodes for r in nest.reductions if isinstance(r.combine, Body)]
    return sum(isinstance(node, Apply) for nodes in (nest.nodes, *bodies) for node in nodes)
