"""Lowering as for processors of a level of x86-64, whatever this processor is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.codelets.products import micro_kernel
from engine.machine_code import processor
from engine.machine_code.instruction_sets import LEVELS

CHOICES = (
    *(processor.lanes, processor.registers, processor.masks_are_cheap, processor.rounds_to_bf16),
    *(processor.multiplies_bf16_pairs, processor.widens_beside_products, micro_kernel.row_counts),
    micro_kernel.row_steps,
)
"""Functions that lowering calls. Constants of codelets stay those of this processor, so nothing may be compiled."""


@contextmanager
def lowered_for(level: str) -> Iterator[None]:
    """Builds programs in the block for x86-64-v3, of 8 lanes, or x86-64-v4, of 16; they never run."""
    name, features = LEVELS[level]
    enabled = frozenset(features.replace("+", "").split(","))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "target", lambda: (name, enabled))
        _forget()
        try:
            yield
        finally:
            patch.undo()
            _forget()


def _forget() -> None:
    for choice in CHOICES:
        choice.cache_clear()
