"""The states of random generators: one of each for the process, so that a new seed reaches every program."""

from __future__ import annotations

import os

import numpy as np

from engine.ir.shape import Shape
from engine.ops.generators import bind
from engine.runtime.buffers import DeviceBuffer

STREAM = 0x5DEECE66D
"""Sets the keys of roundings apart from those of random numbers, for the same seed."""

RNG_STATE = DeviceBuffer(Shape("u64", (3,)))
"""The state of `rng`, Philox' key and counter."""
ROUNDING_STATE = DeviceBuffer(Shape("u64", (3,)))
"""The state of `rng-get-and-update-state`, Philox' key and counter, from which programs draw the keys of roundings."""


def seed_rng(value: int) -> None:
    """Starts `rng` anew; of the seed the lowest 64 bits count."""
    RNG_STATE.write(np.array([value % 2**64, 0, 0], np.uint64))


def seed_rounding(value: int) -> None:
    """Starts the keys of roundings anew; of the seed the lowest 64 bits count."""
    ROUNDING_STATE.write(np.array([(value % 2**64) ^ STREAM, 0, 0], np.uint64))


seed_rng(int.from_bytes(os.urandom(8), "little"))
seed_rounding(int.from_bytes(os.urandom(8), "little"))
bind(RNG_STATE, ROUNDING_STATE)  # the definitions draw from the same
