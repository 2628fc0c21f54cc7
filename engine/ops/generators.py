"""Generator states of `rng` and of the keys of stochastic rounding: the runtime's, else the definitions' own."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np


class GeneratorState(Protocol):
    """Philox's key and counter, u64[3]."""

    def read(self) -> np.ndarray:
        """A copy of the state."""

    def write(self, value: np.ndarray) -> None:
        """Replaces the state."""


class HostState:
    """A state in an array, with a key from the operating system."""

    def __init__(self) -> None:
        self._value = np.array([int.from_bytes(os.urandom(8), "little"), 0, 0], np.uint64)

    def read(self) -> np.ndarray:
        """A copy of the state."""
        return self._value.copy()

    def write(self, value: np.ndarray) -> None:
        """Replaces the state."""
        self._value[...] = value


_states: dict[str, GeneratorState] = {"rng": HostState(), "rounding": HostState()}


def bind(rng: GeneratorState, rounding: GeneratorState) -> None:
    """Sets the states that `rng` and `rng-get-and-update-state` draw from."""
    _states.update(rng=rng, rounding=rounding)


def rng_state() -> GeneratorState:
    """The state of `rng`."""
    return _states["rng"]


def rounding_state() -> GeneratorState:
    """The state of `rng-get-and-update-state`."""
    return _states["rounding"]
