"""Phases of a convolution: output positions along one dimension that read the same taps."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from engine.ir import WindowDimension


@dataclass(frozen=True, slots=True)
class Phase:
    """Along one dimension: outputs first, first + period, ...; for each tap the position where its reads start."""

    first: int
    period: int
    count: int
    step: int
    taps: tuple[int, ...]
    starts: tuple[int, ...]


def phases_of(window: WindowDimension, outputs: int) -> list[Phase]:
    """The phases of `outputs` positions, which cover them all."""
    base, stride = window.base_dilation, window.stride
    period = base // gcd(stride, base)
    found = []
    for first in range(min(period, max(outputs, 1))):
        taps, starts = [], []
        for tap in range(window.size):
            at = first * stride + tap * window.window_dilation - window.padding_low
            if at % base == 0:
                taps.append(window.size - 1 - tap if window.window_reversal else tap)
                starts.append(at // base)
        count = -(-(outputs - first) // period)
        found.append(Phase(first, period, count, period * stride // base, tuple(taps), tuple(starts)))
    return found
