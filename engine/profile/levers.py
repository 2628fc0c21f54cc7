"""What a program that does not fit could be changed to, each estimated again: bytes saved on the fullest tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.profile.account import Account, account
from engine.profile.batches import Batches
from engine.profile.categories import ACTIVATIONS, EXCHANGE_BUFFERS, STREAM_BUFFERS, WEIGHTS
from engine.profile.liveness import Piece, follow
from engine.profile.names import ACCUMULATOR
from engine.profile.options import OPTIMIZER_STATE_VARIABLES, Assumptions
from engine.profile.recomputation import recomputed
from engine.profile.splitting import split
from engine.program.program import Program

SINGLE = "f32["
IPUS = (2, 4, 8, 16)
"""Numbers of IPUs that pipelines are tried on."""
WORTH_SAYING = 0.005
"""Part of the fullest tile's peak; levers that save less are not told."""


@dataclass(frozen=True, slots=True)
class Lever:
    """A change, the bytes that it saves on the fullest tile, and whether the program would fit then."""

    what: str
    saves: int
    fits: bool


def levers(program: Program, found: Account) -> list[Lever]:
    """The changes that would save memory; those that save next to nothing are left out.

    Smaller batches scale the arrays with rows of the batch and plan the products again. Recomputation keeps what passes
    between parts of the forward pass. Pipelining gives each IPU a run of layers of equal bytes, which
    recompute their activations. Options of libraries, and offloading, are whole new accounts.
    """
    estimator = _Estimator(program, found)
    return [lever for lever in estimator.all() if lever.saves >= WORTH_SAYING * found.memory.peak_fullest]


class _Estimator:
    def __init__(self, program: Program, found: Account) -> None:
        self.program, self.found = program, found
        self.pieces, self.tensors = list(found.tiles.pieces), found.liveness
        self.room, self.peak = found.target.bytes_per_tile, found.memory.peak_fullest

    def all(self) -> list[Lever]:
        return [
            *self._smaller_batch(),
            *self._recomputation(),
            *self._half_precision(),
            *self._options(),
            *self._pipelining(),
        ]

    def _lever(self, what: str, pieces: Sequence[Piece], fixed: Mapping[str, np.ndarray] | None = None) -> Lever:
        _, peak, _ = follow(pieces, fixed or self.found.tiles.fixed, len(self.program.compute_sets))
        return self._by_peak(what, int(peak.max()))

    def _by_peak(self, what: str, peak: int) -> Lever:
        return Lever(what, self.peak - peak, peak <= self.room)

    def _smaller_batch(self) -> list[Lever]:
        batches = Batches(self.program, self.found)
        half = batches.size // 2
        if not half:
            return []
        pieces = batches.scaled(half)
        summed = any(tensor.name.startswith(ACCUMULATOR) for tensor in self.tensors)
        trained = [] if summed or not recomputed(self.program, self.found) else self._accumulators()
        found = [self._lever(f"a smaller batch, {half} in place of {batches.size}", pieces)]
        if trained:
            what = f"the same update by gradient accumulation over micro-batches of {half}"
            found.append(self._lever(what, [*pieces, *trained]))
        return found

    def _accumulators(self) -> list[Piece]:
        """The sums of gradients of micro-batches: they lie as the variables do."""
        updated = {s.buffer for c in self.program.compute_sets for s in c.writes if s.buffer.kind == "variable"}
        shapes = {str(buffer.shape) for buffer in updated}
        pairs = zip(self.pieces, self.tensors, strict=True)
        return [piece for piece, tensor in pairs if tensor.category == WEIGHTS and tensor.shape in shapes]

    def _recomputation(self) -> list[Lever]:
        pieces = recomputed(self.program, self.found)
        return [self._lever("recomputation of activations", pieces)] if pieces else []

    def _half_precision(self) -> list[Lever]:
        """Activations and what is exchanged of them; Keras keeps the variables in single precision."""
        singles = [
            any(s.buffer.shape.element_type == "f32" for s in c.reads if s.buffer.kind != "variable")
            for c in self.program.compute_sets
        ]
        pieces = []
        for piece, tensor in zip(self.pieces, self.tensors, strict=True):
            of_step = tensor.category in (ACTIVATIONS, STREAM_BUFFERS) and tensor.shape.startswith(SINGLE)
            exchanged = tensor.category == EXCHANGE_BUFFERS and singles[tensor.first]
            placement = piece.placement.scaled(0.5) if of_step or exchanged else piece.placement
            pieces.append(replace(piece, placement=placement))
        return [self._lever("half precision (mixed_float16)", pieces)]

    def _options(self) -> list[Lever]:
        assumptions, found = self.found.assumptions, []
        if any(compute_set.effort.multiply_adds for compute_set in self.program.compute_sets):
            now = assumptions.available_memory_proportion
            what = f"availableMemoryProportion {now / 2:g} in place of {now:g}"
            found.append(self._account(what, _halved(assumptions)))
        if OPTIMIZER_STATE_VARIABLES not in assumptions.offloaded:
            offloading = replace(assumptions, offloaded=assumptions.offloaded | {OPTIMIZER_STATE_VARIABLES})
            found.append(self._account("optimizer state in streaming memory", offloading))
        return found

    def _account(self, what: str, assumptions: Assumptions) -> Lever:
        again = account(self.program, self.found.target, assumptions=assumptions)
        return self._by_peak(what, again.memory.peak_fullest)

    def _pipelining(self) -> list[Lever]:
        """Over as few IPUs as suffice; if none do, over those that save most: more in flight may cost more."""
        found = []
        for ipus in IPUS:
            peaks = (
                int(follow(pieces, fixed, len(self.program.compute_sets))[1].max())
                for pieces, fixed in split(self.program, self.found, ipus)
            )
            found.append(self._by_peak(f"pipelining over {ipus} IPUs", max(peaks)))
            if found[-1].fits:
                return [found[-1]]
        return [max(found, key=lambda lever: lever.saves)]


def _halved(assumptions: Assumptions) -> Assumptions:
    of_convolutions, of_slices = assumptions.convolution_memory_proportion, assumptions.slice_memory_proportion
    layers = tuple((n, replace(o, memory_proportion=o.memory_proportion / 2)) for n, o in assumptions.layers)
    return replace(
        assumptions,
        available_memory_proportion=assumptions.available_memory_proportion / 2,
        convolution_memory_proportion=None if of_convolutions is None else of_convolutions / 2,
        slice_memory_proportion=None if of_slices is None else of_slices / 2,
        layers=layers,
    )
