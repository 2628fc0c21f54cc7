"""Bytes on the tiles: what always lives there, and what comes and goes with the compute sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.profile.mapping import TileLoad
from engine.profile.names import layer_of, readable_name
from engine.profile.superstep import Superstep
from engine.program.memory import lifetimes
from engine.program.program import Buffer, ComputeSet, Program
from engine.target import Target

VARIABLE = "variable of "


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array in memory, by a name a reader knows, and whether it lives always."""

    name: str
    shape: str
    bytes: int
    always_live: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one chip. `always_live` by kind; bytes per tile as mean and on the fullest tile.

    `live_bytes[i]` are the not-always-live bytes at compute set i, on all tiles; `peak_at` the compute set at
    which a tile is fullest, `peak_tile` that tile, `largest` the arrays alive then, the largest first.
    """

    always_live: dict[str, int]
    always_live_mean: float
    always_live_fullest: int
    live_bytes: tuple[int, ...]
    peak_mean: float
    peak_fullest: int
    peak_tile: int
    peak_at: int
    largest: tuple[Tensor, ...]


def account_memory(program: Program, supersteps: Sequence[Superstep], target: Target) -> Memory:
    """Follows the program through one step. Code and vertex state are not counted: no figure is published."""
    always = always_live_buffers(program)
    load = TileLoad(target)
    for buffer in always:
        load.add(buffer)
    fixed = load.tile_bytes.copy()
    lives = {b: span for b, span in lifetimes(program).items() if b not in always}
    starting, ending = _events(lives)
    alive: set[Buffer] = set()
    live_bytes: list[int] = []
    peak, tile, peak_at, peak_mean = int(fixed.max()), int(fixed.argmax()), 0, float(fixed.mean())
    at_peak: set[Buffer] = set()
    for at, step in enumerate(supersteps):
        for buffer in starting.get(at, []):
            load.add(buffer)
            alive.add(buffer)
        held = sum(b.shape.bytes for b in alive) + step.temporary_bytes * step.tiles
        live_bytes.append(held)
        fullest = int(load.tile_bytes.max()) + step.temporary_bytes
        if fullest > peak:
            peak, tile, peak_at, at_peak = fullest, int(load.tile_bytes.argmax()), at, set(alive)
        peak_mean = max(peak_mean, (int(fixed.sum()) + held) / target.tiles)
        for buffer in ending.get(at, []):
            load.remove(buffer)
            alive.discard(buffer)
    names = buffer_names(program)
    found = [_tensor(b, names, True) for b in always] + [_tensor(b, names, False) for b in at_peak]
    return Memory(
        always_live=_by_kind(always),
        always_live_mean=float(fixed.mean()),
        always_live_fullest=int(fixed.max()),
        live_bytes=tuple(live_bytes),
        peak_mean=peak_mean,
        peak_fullest=peak,
        peak_tile=tile,
        peak_at=peak_at,
        largest=tuple(sorted(found, key=lambda t: (-t.bytes, t.name, t.shape))),
    )


def always_live_buffers(program: Program) -> dict[Buffer, str]:
    """Variables, constants, permanent borders and feeds, each with its kind, in the order of first use."""
    found: dict[Buffer, str] = {b: "variables" for b in program.variables.values()}
    found |= {b: "feeds" for b in program.feeds.values()}
    kinds = {"variable": "variables", "constant": "constants", "feed": "feeds"}
    for compute_set in program.compute_sets:
        for span in (*compute_set.reads, *compute_set.writes):
            if span.buffer.kind in kinds:
                found.setdefault(span.buffer, kinds[span.buffer.kind])
            elif span.buffer.permanent:
                found.setdefault(span.buffer, "borders")
    return found


def buffer_names(program: Program) -> dict[Buffer, str]:
    """A name for each array: what writes it, or for a variable the layer that reads it first.

    An optimizer's slot is named after the variable of the same shape that is updated with it.
    """
    names: dict[Buffer, str] = {}
    for compute_set in program.compute_sets:
        layer = layer_of(compute_set.op_name)
        updated = [s.buffer for s in compute_set.writes if s.buffer in names and s.buffer.kind == "variable"]
        for span in compute_set.reads:
            if span.buffer.kind == "variable" and layer:
                shape = span.buffer.shape
                owner = next((names[b] for b in updated if b.shape == shape and shape.elements > 1), "")
                names.setdefault(span.buffer, f"{layer} slot of {owner}" if owner else f"{VARIABLE}{layer}")
        for span in compute_set.writes:
            if span.buffer.kind == "arena":
                names.setdefault(span.buffer, readable_name(compute_set.op_name, span.buffer.name))
    return names


def label_of(compute_set: ComputeSet, names: dict[Buffer, str]) -> str:
    """The readable name of a compute set; for an optimizer's, what it updates."""
    layer = layer_of(compute_set.op_name)
    for span in compute_set.writes:
        name = names.get(span.buffer, "")
        owner = name.removeprefix(VARIABLE)
        if name.startswith(VARIABLE) and span.buffer.shape.elements > 1 and layer and owner != layer:
            return f"{layer} update of {owner}"
    return readable_name(compute_set.op_name, compute_set.name)


def _events(
    lives: dict[Buffer, tuple[int, int]],
) -> tuple[dict[int, list[Buffer]], dict[int, list[Buffer]]]:
    starting: dict[int, list[Buffer]] = {}
    ending: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in lives.items():
        starting.setdefault(max(first, 0), []).append(buffer)
        ending.setdefault(last, []).append(buffer)
    return starting, ending


def _by_kind(always: dict[Buffer, str]) -> dict[str, int]:
    totals = {"variables": 0, "constants": 0, "borders": 0, "feeds": 0}
    for buffer, kind in always.items():
        totals[kind] += buffer.shape.bytes
    return totals


def _tensor(buffer: Buffer, names: dict[Buffer, str], always_live: bool) -> Tensor:
    default = f"input {buffer.index}" if buffer.kind == "feed" else buffer.name
    return Tensor(names.get(buffer, default), str(buffer.shape), buffer.shape.bytes, always_live)
