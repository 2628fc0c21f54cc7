"""Copies of variables that come from the host, before the first step.

The host sends an array in row-major order. One that has the layout of a product's plan is received in that order and
then rearranged on the tiles, through as many bytes as a rearranged operand, unless the options rearrange on the host.
All variables have their buffers at once: no source says so, but the published bytes of tf_lstm1 do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from engine.profile.categories import EXCHANGE_BUFFERS
from engine.profile.liveness import LiveRange
from engine.profile.vertices import tables
from engine.program.program import Buffer
from engine.target import Target


def loading(
    blocks: Sequence[LiveRange], arranged: Set[Buffer], fixed: Mapping[str, np.ndarray], target: Target
) -> list[LiveRange]:
    """The buffers of `arranged` variables, at compute set 0 in place of what it has there itself.

    `blocks` are the live ranges of the step, and `fixed` its bytes of code and state, int64 [tiles]. Where the tiles
    have no room for all of them the variables come one by one; loading never decides whether a program fits.
    """
    loaded = [each for each in blocks if each.first < 0 and each.buffer in arranged]
    always, begun = sum(fixed.values(), np.zeros(target.tiles, np.int64)), np.zeros(target.tiles, np.int64)
    for each in blocks:
        if each.first <= 0:
            each.placement.add_to(always if each.first < 0 else begun)
    copies = tables()["rearrangement"]["copies"]
    room = target.bytes_per_tile - int(always.max(initial=0))
    if copies * sum(each.placement.per_tile for each in loaded) > room:
        loaded = sorted(loaded, key=lambda each: each.placement.per_tile)[-1:]
    whole = sum(each.placement.per_tile for each in loaded)
    more = min(copies * whole, room) - int(begun.max(initial=0))
    if more <= 0:
        return []
    return [
        replace(each, placement=each.placement.scaled(more / whole), first=0, last=0, category=EXCHANGE_BUFFERS)
        for each in loaded
    ]
