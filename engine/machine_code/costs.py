"""Costs of float32 products: a table by processor, with a default for those that were not measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf

from engine.machine_code.processor import target

MOST_UNITS = 64
"""Units that one compute set is partitioned into. Chosen by hand: many more than two workers need, for even loads."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Nanoseconds on one worker."""

    multiply_add: float
    """One float32 multiply-add in the micro-kernels."""
    split_multiply_add: float
    """One multiply-add on matrix registers: six products of three bfloat16 parts. Infinite where they are not used."""
    split: float
    """Splitting one element into these parts."""
    gather: float
    """Extra cost of an element of A whose neighbours along k are not contiguous."""


DEFAULT = Costs(multiply_add=1 / 77, split_multiply_add=inf, split=0.28, gather=0.4)
"""Safe on any processor: no product is split."""
MEASURED = {"amx-bf16": Costs(multiply_add=1 / 77, split_multiply_add=1 / 172, split=0.28, gather=0.4)}
"""Keyed by a feature of the processor, as a hypervisor may hide its model.

amx-bf16: two cores of a Xeon with AVX-512, AMX and 2 MiB of second-level cache, November 2026.
"""


@cache
def costs() -> Costs:
    """Costs on the processor that code is compiled for."""
    return next((each for feature, each in MEASURED.items() if feature in target()[1]), DEFAULT)
