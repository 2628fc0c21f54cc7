"""Models of usual layers find nearly all of their fused loops among those that an installation compiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.installation import loops_of, usual_steps
from tests import forking

MOST_COMPILED = 3
"""Loops, of 23 or 24: those of few columns have the number of these in their code."""
MODELS = {
    # Units of layers, batch, optimizer: none of them as recorded.
    "dense": ((200, 72), 48, "adam"),
    "momentum": ((300,), 64, "momentum"),
    "decay": ((96, 80), 100, "adamw"),
    "large batch": ((400, 200), 512, "rmsprop"),
}


def stored(folder: str, units: tuple[int, ...], batch: int, optimizer: str) -> None:
    """Trains for a step in a process of its own, whose programs are stored in a folder."""
    import keras
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.serialization_output_folder = folder
    config.configure_ipu_system()
    layers, optimizers = keras.layers, keras.optimizers
    chosen = {"momentum": optimizers.SGD(0.3, 0.8), "adamw": optimizers.AdamW(0.02, weight_decay=0.01)}
    with ipu.ipu_strategy.IPUStrategy().scope():
        hidden = [each for n in units for each in (layers.Dense(n, "relu"), layers.Dropout(0.3))]
        model = keras.Sequential([layers.Input((50,)), *hidden, layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(chosen.get(optimizer, optimizer), loss, metrics=["accuracy"])
    model.fit(np.ones((batch, 50), np.float32), np.zeros(batch, np.int64), batch_size=batch, verbose=0)


@pytest.mark.parametrize("name", MODELS)
def test_few_loops_are_compiled(name: str, tmp_path: Path) -> None:
    forking.run(stored, str(tmp_path), *MODELS[name])
    installed = {each.path for each in loops_of(usual_steps())}
    (program,) = tmp_path.glob("*.poplar_exec")
    loops = loops_of([program.read_bytes()])
    assert len(loops) > 20 and sum(each.path not in installed for each in loops) <= MOST_COMPILED
