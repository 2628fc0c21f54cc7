"""Ctrl-C while the engine computes: the call ends at a step boundary and everything stays usable."""

from __future__ import annotations

import os
import signal

import keras
import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from tests.interrupting import engine_runs, interrupted_when

STEPS = 20_000
WIDTH = 1024
"""Units of a layer that make all the steps take a minute."""


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_interrupt_inside_an_execution_leaves_whole_steps() -> None:
    x = np.random.default_rng(0).normal(size=(STEPS * 8, 64)).astype(np.float32)
    y = x[:, :1].copy()
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((64,)), *map(keras.layers.Dense, (WIDTH, WIDTH, 1))])
        model.compile(keras.optimizers.SGD(1e-4), "mse", steps_per_execution=STEPS)
    model.fit(x[:64], y[:64], batch_size=8, verbose=0)
    before = int(model.optimizer.iterations.numpy())
    with interrupted_when(engine_runs, lambda: os.kill(os.getpid(), signal.SIGINT)):
        model.fit(x, y, batch_size=8, verbose=0)
    done = int(model.optimizer.iterations.numpy()) - before
    assert 0 <= done < STEPS
    assert all(np.isfinite(w).all() for w in model.get_weights())
    model.fit(x[:64], y[:64], batch_size=8, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == before + done + 8
