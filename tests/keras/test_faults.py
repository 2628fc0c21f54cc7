"""Faults during a fit lose nothing beyond the last completed step, and leave everything usable."""

from __future__ import annotations

import errno
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras.src.callbacks import BackupAndRestore
from tf_keras.src.distribute.worker_training_state import WorkerTrainingState

from engine.errors import InvalidFile
from keras_ext.random_states import random_states, restore_random_states
from tests import forking
from tests.exploring import sample
from tests.keras.helpers import CLASSES, FEATURES, KITS, Kit, data, keras3_only
from tests.keras.resuming import DATA, EPOCHS, ending, state, train

X, Y = data(48)


def same_state(one: Any, other: Any, where: str = "") -> None:
    for received, expected in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(received, expected, where)


def completed(kit: Kit, start: list[np.ndarray], batches: int) -> Any:
    """A model trained on exactly `batches` batches from the same start."""
    model = kit.ipu_model(steps_per_execution=2)
    model.set_weights(start)
    if batches:
        model.fit(X[: 8 * batches], Y[: 8 * batches], batch_size=8, shuffle=False, verbose=0)
    return model


def goes_on_to_the_same_bits(framework: str, kind: str, directory: Path) -> None:
    """Resumes a training that ended in its third epoch, and compares it with an uninterrupted one."""
    epochs: list[int] = []
    keras = KITS[framework].keras
    begun = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    resumed = train(framework, kind, directory, begun)
    assert epochs == [2, 3]
    same_state(resumed, train(framework, kind, None))


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # Keras 3, which leaves data sets as they are
@pytest.mark.explore
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("framework", KITS)
def test_a_killed_fit_goes_on_to_the_same_bits(framework: str, kind: str, tmp_path: Path) -> None:
    status, output = forking.run(forking.module, "tests.keras.resuming", framework, kind, str(tmp_path))
    assert status == -signal.SIGKILL, output
    goes_on_to_the_same_bits(framework, kind, tmp_path)


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("framework", KITS)
def test_an_interrupted_fit_goes_on_to_the_same_bits(framework: str, kind: str, tmp_path: Path) -> None:
    """Interrupts in one process, in a tenth of the time that killing one takes."""

    left: list[dict[Path, bytes]] = []

    def interrupt() -> None:
        left.append(files(tmp_path))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(framework, kind, tmp_path, ending(KITS[framework].keras, interrupt))
    assert left == [files(tmp_path)] and left[0]  # a kill leaves the same
    goes_on_to_the_same_bits(framework, kind, tmp_path)


def snapshots(framework: str, directory: Path, into: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> list[Path]:
    """Copies `directory` at `count` moments of the third backup of a training: the files that a kill would leave."""
    owner, name = (BackupAndRestore, "_save_model") if framework == "keras" else (WorkerTrainingState, "back_up")
    back_up = getattr(owner, name)
    events: list[int] = []
    made: list[Path] = []

    def watched(*arguments: Any, **named: Any) -> None:
        events.append(0)
        moments = {events[1] * (2 * k + 1) // (2 * count) for k in range(count)} if len(events) == 3 else set()

        def event(frame: Any, kind: str, _: Any) -> None:
            events[-1] += 1
            if events[-1] in moments:
                sys.setprofile(None)
                made.append(Path(shutil.copytree(directory, into / str(events[-1]))))
                sys.setprofile(event)

        sys.setprofile(event)
        try:
            back_up(*arguments, **named)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, watched)
        train(framework, "arrays", directory)
    assert len(events) == EPOCHS and len(made) == count
    return made


@pytest.mark.parametrize("framework", KITS)
def test_a_fit_killed_in_a_backup_goes_on_to_the_same_bits(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(framework, "arrays", None)
    begun: set[int] = set()
    for left in sample(snapshots(framework, tmp_path / "backup", tmp_path, monkeypatch, 40), 5):
        there = {path.name: len(content) for path, content in files(left).items()}
        resumed = train(framework, "arrays", left)
        same_state(resumed, expected, f"at call {left.name}, with {there}, from epoch {resumed.history.epoch[0]}")
        begun.add(resumed.history.epoch[0])
    assert begun <= {2, 3} and 2 in begun


@keras3_only
@pytest.mark.parametrize("keeps_two", [False, True])
def test_a_damaged_backup_is_named(
    keeps_two: bool, kit: Kit, keras: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The former backup is used where Keras keeps two; errors such as those of another model are Keras' own."""
    arguments = {"double_checkpoint": keeps_two, "delete_checkpoint": False}
    kit.ipu_model().fit(X, Y, epochs=3, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(tmp_path, **arguments)])
    weights = tmp_path / "latest.weights.h5"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    again = kit.ipu_model()
    callback = keras.callbacks.BackupAndRestore(tmp_path, **arguments)
    if not keeps_two:
        with pytest.raises(InvalidFile, match=f"whole backup in {tmp_path}"):
            again.fit(X, Y, epochs=3, verbose=0, callbacks=[callback])
    else:
        again.fit(X, Y, epochs=3, verbose=0, callbacks=[callback])
        assert again.history.epoch == [2] and "latest.weights.h5 is damaged" in caplog.text
    weights.write_bytes(whole)
    other = kit.ipu_model(lambda: keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, name="d")]))
    with pytest.raises(ValueError, match="could not be loaded|[Ss]hape"):
        other.fit(X, Y, verbose=0, callbacks=[callback])


@keras3_only
def test_plain_keras_reads_a_backup(kit: Kit, keras: Any, tmp_path: Path) -> None:
    """The file has one group more than Keras writes."""
    model, plain = kit.ipu_model(), kit.compiled(kit.sequential())
    for each, callback in ((model, keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)), (plain, None)):
        each.fit(X, Y, verbose=0, callbacks=[] if callback is None else [callback])
    plain.load_weights(tmp_path / "latest.weights.h5")
    same_state(plain, model)
    again = kit.compiled(kit.sequential())
    again.fit(X, Y, epochs=2, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(tmp_path)])
    assert again.history.epoch == [1]


def test_a_backup_of_another_model_is_refused(kit: Kit) -> None:
    if kit.is_keras3:
        generators = [kit.keras.random.SeedGenerator(number).state for number in range(3)]
    else:
        generators = [tf.Variable([number, 0]) for number in range(3)]
    states = random_states(generators)
    generators[0].assign([7, 7])
    restore_random_states(states, generators)
    np.testing.assert_array_equal(np.asarray(generators[0]), [0, 0])
    with pytest.raises(ValueError, match="as many random layers as the one that was backed up: 3 .* Received: 2"):
        restore_random_states(states, generators[:2])


@pytest.mark.sample(2)
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
    twin = completed(kit, start, broken_at)  # as in Keras, though an execution has two steps
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
    model.fit(X, Y, batch_size=8, verbose=0)


def full(*arguments: Any, **named: Any) -> None:
    """Raises as on a full disk. HDF5 itself crashes when a file cannot be closed, so no file is opened."""
    raise OSError(errno.ENOSPC, "No space left on device")


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
