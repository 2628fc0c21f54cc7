"""The states of random generators: one of each per process, so that a new seed reaches every program."""

from __future__ import annotations

import os

import numpy as np

from engine.ir.shape import Shape
from engine.ops.generators import bind
from engine.runtime.buffers import DeviceBuffer

STREAM = 0x5DEECE66D
"""Separates the keys of stochastic rounding from the keys of random numbers, for the same seed."""

RNG_STATE = DeviceBuffer(Shape("u64", (3,)))
"""The state of `rng`, Philox's key and counter."""
ROUNDING_STATE = DeviceBuffer(Shape("u64", (3,)))
"""The state of `rng-get-and-update-state`, Philox's key and counter, the source of the keys of stochastic rounding."""


def seed_rng(value: int) -> None:
    """Seeds `rng` with the lowest 64 bits of `value`."""
    RNG_STATE.write(np.array([value % 2**64, 0, 0], np.uint64))


def seed_rounding(value: int) -> None:
    """Seeds the keys of stochastic rounding with the lowest 64 bits of `value`."""
    ROUNDING_STATE.write(np.array([(value % 2**64) ^ STREAM, 0, 0], np.uint64))


seed_rng(int.from_bytes(os.urandom(8), "little"))
seed_rounding(int.from_bytes(os.urandom(8), "little"))
bind(RNG_STATE, ROUNDING_STATE)  # the NumPy definitions draw from the same states
