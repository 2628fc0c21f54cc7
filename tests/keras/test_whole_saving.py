"""Files of a strategy's model in either Keras are whole or absent: a kill or a full disk leaves the former file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import InvalidFile, ResourceLimit
from tests.fault_points import ERRORS, fails_at, fault_points, left_by_kills
from tests.keras.helpers import Kit, data, keras3_only, tf_keras_only

X, Y = data(16)
pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")


def save(model: Any, path: Path) -> None:
    (model.save_weights if "weights" in path.name else model.save)(str(path))


def loaded(kit: Kit, path: Path, fresh: Any) -> list[np.ndarray]:
    """The weights in a file."""
    if "weights" not in path.name:
        return list(kit.keras.models.load_model(str(path), compile=False).get_weights())
    fresh.load_weights(str(path))
    return list(fresh.get_weights())


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def moved(model: Any) -> list[np.ndarray]:
    """Changes each weight of a model; returns the weights."""
    model.set_weights([weight + 1 for weight in model.get_weights()])
    return list(model.get_weights())


FILES = ["m.keras", "m.h5", "m.weights.h5"]


@pytest.mark.parametrize("name", FILES)
def test_kills_and_full_disks_leave_the_former(name: str, kit: Kit, tmp_path: Path) -> None:
    model, fresh, folder = kit.ipu_model(kit.functional), kit.functional(), tmp_path / "f"
    folder.mkdir()
    former = list(model.get_weights())
    save(model, folder / name)
    whole = (folder / name).read_bytes()
    new = moved(model)
    for number, code in enumerate(ERRORS.values()):
        error = fails_at(lambda: save(model, folder / name), number + 1, code)
        assert error is not None and error.errno == code
        assert (folder / name).read_bytes() == whole and [p.name for p in folder.iterdir()] == [name]
    kept = left_by_kills(lambda: save(model, folder / name), folder, tmp_path)
    changed = [(each / name).read_bytes() != whole for each in kept]
    assert 3 < len(kept) and sorted(changed) == changed and changed[-1] and not changed[0]
    at = changed.index(True)
    assert same(loaded(kit, kept[at - 1] / name, fresh), former)
    assert same(loaded(kit, kept[at] / name, fresh), new) and same(loaded(kit, kept[-1] / name, fresh), new)
    assert [p.name for p in kept[-1].iterdir()] == [name]


@pytest.mark.parametrize("name", FILES[::2])
def test_checkpoints_of_a_fit_are_whole(name: str, kit: Kit, tmp_path: Path) -> None:
    """`ModelCheckpoint` overwrites one file in each epoch; at each moment the file is that of an epoch."""
    model, fresh, folder = kit.ipu_model(kit.functional), kit.functional(), tmp_path / "f"
    folder.mkdir()
    weights: list[list[np.ndarray]] = []
    keep = kit.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: weights.append(model.get_weights()))
    checkpoint = kit.keras.callbacks.ModelCheckpoint(str(folder / name), save_weights_only="weights" in name)
    kept = left_by_kills(
        lambda: model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[keep, checkpoint]), folder, tmp_path
    )
    contents = {(each / name).read_bytes(): each / name for each in kept if (each / name).exists()}
    assert len(contents) == 2
    for path, expected in zip(contents.values(), weights, strict=True):
        assert same(loaded(kit, path, fresh), expected)


def test_a_folder_is_replaced_at_once(kit: Kit, tmp_path: Path) -> None:
    """SavedModels of tf_keras and model folders of Keras 3 are replaced; other files in the folder stay."""
    model, folder = kit.ipu_model(kit.functional), tmp_path / "f"
    target, options = folder / "model", {"zipped": False} if kit.is_keras3 else {"save_format": "tf"}
    target.mkdir(parents=True)
    (target / "notes.txt").write_text("mine")
    former = list(model.get_weights())
    model.save(str(target), **options)
    new = moved(model)
    kept = left_by_kills(lambda: model.save(str(target), **options), folder, tmp_path)
    for each, expected in ((kept[0], former), (kept[-1], new)):
        assert same(kit.keras.models.load_model(str(each / "model"), compile=False).get_weights(), expected)
    variables = [next(each.glob("model/**/*.h5" if kit.is_keras3 else "model/**/*.data*")) for each in kept]
    assert len({path.read_bytes() for path in variables}) == 2
    assert all((each / "model" / "notes.txt").read_text() == "mine" for each in kept)


@tf_keras_only
def test_prefixes_of_files(kit: Kit, tmp_path: Path) -> None:
    """TensorFlow's format has an index beside its data; the state file that names both is written last."""
    model, fresh, folder = kit.ipu_model(kit.functional), kit.functional(), tmp_path / "f"
    folder.mkdir()
    with fault_points(lambda number: None) as passed:
        model.save_weights(str(folder / "weights"))
    renamed = [path.name for what, path in passed if what == "rename"]
    assert renamed == ["weights.data-00000-of-00001", "weights.index", "checkpoint"]
    shutil.move(folder, tmp_path / "moved")
    latest = tmp_path / "moved" / "weights"
    assert same(loaded(kit, latest, fresh), model.get_weights())


@keras3_only
def test_shards(kit: Kit, tmp_path: Path) -> None:
    model, fresh = kit.ipu_model(kit.functional), kit.functional()
    with fault_points(lambda number: None) as passed:
        model.save_weights(tmp_path / "w.weights.json", max_shard_size=2e-7)
    renamed = [path.name for what, path in passed if what == "rename"]
    assert len(renamed) > 2 and renamed[-1] == "w.weights.json"
    fresh.load_weights(tmp_path / "w.weights.json")
    assert same(fresh.get_weights(), model.get_weights())


def test_hdf5_is_not_begun_without_space(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 would end the process on a full disk, so enough bytes for the file, with all slots, are asked for before."""
    model, asked = kit.ipu_model(kit.functional, optimizer="adam"), []
    model.fit(X, Y, verbose=0)
    save(model, tmp_path / "m.weights.h5")

    def full(handle: int, offset: int, size: int) -> None:
        asked.append(size)
        raise OSError(ERRORS["full"], "No space left on device")

    whole = (tmp_path / "m.weights.h5").read_bytes()
    monkeypatch.setattr("os.posix_fallocate", full)
    for name in ("m.weights.h5", "m.h5"):
        with pytest.raises(OSError, match="No space left on device"):
            save(model, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["m.weights.h5"]
    assert (tmp_path / "m.weights.h5").read_bytes() == whole and len(whole) < min(asked)


def test_plain_models_and_refused_paths_are_left_to_keras(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_points(lambda number: None) as passed:
        save(kit.compiled(kit.functional()), tmp_path / "plain.weights.h5")
        monkeypatch.setattr("builtins.input", lambda *prompt: "n")
        model = kit.ipu_model(kit.functional)
        former = (tmp_path / "plain.weights.h5").read_bytes()
        model.save_weights(str(tmp_path / "plain.weights.h5"), overwrite=False)
        assert (tmp_path / "plain.weights.h5").read_bytes() == former
        with pytest.raises((OSError, ValueError)):
            save(model, tmp_path / "absent" / "m.keras")
    assert not passed and not (tmp_path / "absent").exists()


def backed_up(kit: Kit, folder: Path, epochs: int, **arguments: Any) -> Any:
    model = kit.ipu_model(kit.functional)
    callback = kit.keras.callbacks.BackupAndRestore(str(folder), **arguments)
    model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0, callbacks=[callback])
    return model


def test_the_deletion_of_a_backup_is_whole(kit: Kit, tmp_path: Path) -> None:
    """A kill after a fit leaves all of its backup or nothing, but never an epoch number without weights."""
    folder = tmp_path / "f" / "backup"
    folder.mkdir(parents=True)
    kept = left_by_kills(lambda: backed_up(kit, folder, 1), folder.parent, tmp_path / "copies")
    weights = "latest.weights.h5" if kit.is_keras3 else "chief/*.index"
    part = "training_metadata.json" if kit.is_keras3 else "chief/checkpoint"
    whole = [(bool([*each.glob(f"backup/{weights}")]), bool([*each.glob(f"backup/{part}")])) for each in kept]
    at = max(number for number, pair in enumerate(whole) if all(pair))
    assert len(kept) - 3 <= at < len(kept) - 1 and not any(any(pair) for pair in whole[at + 1 :])


PARTS = {
    "keras": ["latest.weights.h5", "training_metadata.json"],
    "tf_keras": ["chief/checkpoint", "chief/ckpt-1.index", "chief/ckpt-1.data-00000-of-00001"],
}


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_pipes_and_devices_in_a_backup_are_named(kind: str, kit: Kit, tmp_path: Path) -> None:
    """A resumed fit neither waits for the writer of a pipe nor reads a device without end."""
    parts = PARTS["keras" if kit.is_keras3 else "tf_keras"]
    for number, odd in enumerate(parts):
        folder = tmp_path / str(number)
        for part in parts:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).write_bytes(b"")
        path = folder / odd
        path.unlink()
        if kind == "a pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(InvalidFile, match=f"{path} .* Received: {kind}"):
            backed_up(kit, folder, 1)


@tf_keras_only
@pytest.mark.parametrize("kind", ["too large", "no text"])
def test_a_state_file_that_is_none_is_named(kind: str, kit: Kit, tmp_path: Path) -> None:
    """TensorFlow ends in a segmentation fault for a large one."""
    path = tmp_path / "chief" / "checkpoint"
    path.parent.mkdir()
    path.write_bytes(b"\xe0" * 10)
    if kind == "too large":
        with path.open("r+b") as file:
            file.truncate(1 << 40)
    with pytest.raises((InvalidFile, ResourceLimit), match=f"{path}"):
        backed_up(kit, tmp_path, 1)


@keras3_only
def test_metadata_without_weights_begin_at_the_first_epoch(kit: Kit, tmp_path: Path) -> None:
    """A kill while plain Keras deletes its backup leaves only metadata."""
    (tmp_path / "training_metadata.json").write_text('{"epoch": 2, "batch": 0}')
    assert backed_up(kit, tmp_path, 3).history.epoch == [0, 1, 2]


def damage(directory: Path, pattern: str) -> None:
    for path in directory.glob(pattern):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@tf_keras_only
@pytest.mark.parametrize("pattern", ["*.data*", "*.index", "checkpoint", "*.npz"])
def test_a_damaged_backup_of_tf_keras_is_named(
    pattern: str, kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The former backup is used if one exists."""
    delete = "tf_keras.src.distribute.worker_training_state.WorkerTrainingState.delete_backup"
    with monkeypatch.context() as patch:
        patch.setattr(delete, lambda state: None)
        backed_up(kit, tmp_path, 1)
        chief = tmp_path / "chief"
        first = tmp_path / "first"
        shutil.copytree(chief, first)
        backed_up(kit, tmp_path, 2)
    if pattern == "checkpoint":
        (chief / pattern).write_bytes(b'model_checkpoint_path: "ck')
        assert backed_up(kit, tmp_path, 3).history.epoch == [2]
        assert "checkpoint is damaged" in caplog.text
        return
    damage(chief, pattern)
    with pytest.raises(InvalidFile, match=f"{chief}/ckpt-2"):
        backed_up(kit, tmp_path, 3)
    if pattern == "*.npz":
        return
    for path in first.glob("ckpt-1*"):
        shutil.copy2(path, chief / path.name)
    assert backed_up(kit, tmp_path, 3).history.epoch == [1, 2]
    assert "ckpt-2 is damaged" in caplog.text and "ckpt-1 is restored" in caplog.text
