"""The states of random generators: one of each per process, so that a new seed reaches every program."""

from __future__ import annotations

import os

import numpy as np

STREAM = 0x5DEECE66D
"""Separates the keys of stochastic rounding from the keys of random numbers, for the same seed."""
WORDS = 3


class GeneratorState:
    """Philox's key and counter, u64 [WORDS], at an address that never changes; at first from the operating system."""

    def __init__(self) -> None:
        self._value = np.array([int.from_bytes(os.urandom(8), "little"), 0, 0], np.uint64)
        self.address: int = self._value.ctypes.data

    def read(self) -> np.ndarray:
        """A copy of the state."""
        return self._value.copy()

    def write(self, value: np.ndarray) -> None:
        """Replaces the state; raises ValueError for another shape or dtype."""
        if value.shape != self._value.shape or value.dtype != self._value.dtype:
            raise ValueError(f"Expected a state, uint64[{WORDS}]. Received: {value.dtype}{list(value.shape)}.")
        self._value[...] = value


RNG_STATE = GeneratorState()
"""The state of `rng`."""
ROUNDING_STATE = GeneratorState()
"""The state of `rng-get-and-update-state`, the source of the keys of stochastic rounding."""


def seed_rng(value: int) -> None:
    """Seeds `rng` with the lowest 64 bits of `value`."""
    RNG_STATE.write(np.array([value % 2**64, 0, 0], np.uint64))


def seed_rounding(value: int) -> None:
    """Seeds the keys of stochastic rounding with the lowest 64 bits of `value`."""
    ROUNDING_STATE.write(np.array([(value % 2**64) ^ STREAM, 0, 0], np.uint64))
