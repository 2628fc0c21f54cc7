"""What goes wrong during a fit loses nothing beyond the last completed execution, and leaves everything usable."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.keras.helpers import KITS, Kit, data
from tests.keras.resuming import state, train

ROOT = Path(__file__).parents[2]
X, Y = data(48)


def same_state(one: Any, other: Any) -> None:
    for received, expected in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(received, expected)


def completed(kit: Kit, start: list[np.ndarray], batches: int) -> Any:
    """A model that has had just so many batches from the same start."""
    model = kit.ipu_model(steps_per_execution=2)
    model.set_weights(start)
    if batches:
        model.fit(X[: 8 * batches], Y[: 8 * batches], batch_size=8, shuffle=False, verbose=0)
    return model


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("framework", KITS)
def test_a_killed_fit_goes_on_to_the_same_bits(framework: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.keras.resuming", framework, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    epochs: list[int] = []
    keras = KITS[framework].keras
    resumed = train(
        framework, tmp_path, keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    )
    assert epochs == [2, 3]
    same_state(resumed, train(framework, None))


@pytest.mark.parametrize("broken_at", [0, 3, 4])
def test_data_that_raise_in_the_middle(kit: Kit, broken_at: int) -> None:
    def batches() -> Iterator[Any]:
        for batch in range(broken_at):
            yield X[8 * batch : 8 * batch + 8], Y[8 * batch : 8 * batch + 8]
        raise OSError("cannot read on")

    signature = (tf.TensorSpec([8, 5]), tf.TensorSpec([8], tf.int64))
    model = completed(kit, kit.sequential().get_weights(), 0)
    start = model.get_weights()
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    with pytest.raises((OSError, tf.errors.OpError), match="cannot read on"):
        model.fit(dataset, steps_per_epoch=6, shuffle=False, verbose=0)
    twin = completed(kit, start, broken_at // 2 * 2)
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
    model.fit(X, Y, batch_size=8, verbose=0)


def full(*arguments: Any, **named: Any) -> None:
    """What writing does on a full disk. HDF5 itself crashes when a file cannot be closed, so none is opened."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_disk_full_while_checkpointing(kit: Kit, keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = completed(kit, kit.sequential().get_weights(), 0)
    start = model.get_weights()
    model.fit(X[:8], Y[:8], verbose=0)  # compiles, which writes to the cache
    model.set_weights(start)
    for variable in model.optimizer.variables() if callable(model.optimizer.variables) else model.optimizer.variables:
        if "learning_rate" not in getattr(variable, "path", variable.name):
            variable.assign(np.zeros(variable.shape, variable.dtype if kit.is_keras3 else variable.dtype.name))
    checkpoint = keras.callbacks.ModelCheckpoint(str(tmp_path / "model.weights.h5"), save_weights_only=True)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(type(model), "save_weights", full)
        model.fit(X, Y, batch_size=8, shuffle=False, epochs=2, verbose=0, callbacks=[checkpoint])
    twin = completed(kit, start, 6)
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
    model.fit(X, Y, batch_size=8, verbose=0)
    model.save_weights(str(tmp_path / "again.weights.h5"))
    twin.load_weights(str(tmp_path / "again.weights.h5"))
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
