"""Executables in serialization_output_folder and executable_cache_path, and systems that only compile."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.files import kept
from engine.files.executable_file import read_executable
from ipu.config import DeviceConnectionType, IPUConfig
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.keras.helpers import Kit
from tests.strategy.helpers import compiled


def configure(folder: Path | str = "", connection: DeviceConnectionType = DeviceConnectionType.ALWAYS) -> None:
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.serialization_output_folder = str(folder)
    config.device_connection.type = connection
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()


def executables(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.poplar_exec"))


def run(strategy: IPUStrategyV1, factor: float) -> Any:
    """Runs a new function each time, so it is compiled each time."""
    return strategy.run(compiled(lambda x: x * factor), args=(np.ones(3, np.float32),)).numpy().tolist()


@pytest.mark.parametrize("by", ["folder", "flags"])
def test_programs_are_stored_and_found_again(
    strategy: IPUStrategyV1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    folder = tmp_path / "new" / "folder"
    if by == "flags":
        monkeypatch.setenv("TF_POPLAR_FLAGS", f"--use_ipu_model --executable_cache_path={folder}")
    configure(folder if by == "folder" else "")
    assert run(strategy, 2.0) == [2.0] * 3
    stored = executables(folder)
    assert len(stored) == 1
    times = {name: (folder / name).stat().st_mtime_ns for name in stored}
    assert run(strategy, 2.0) == [2.0] * 3
    assert {name: (folder / name).stat().st_mtime_ns for name in executables(folder)} == times
    assert run(strategy, 3.0) == [3.0] * 3
    assert len(executables(folder)) == 2


def test_a_damaged_file_is_rewritten(strategy: IPUStrategyV1, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    configure(tmp_path)
    run(strategy, 2.0)
    (path,) = tmp_path.glob("*.poplar_exec")
    path.write_bytes(path.read_bytes()[:100])
    with caplog.at_level(logging.WARNING, "ipu"):
        assert run(strategy, 2.0) == [2.0] * 3
    assert "written again" in caplog.text and read_executable(path).roles == ["feed"]


def test_a_folder_that_cannot_be_written(
    strategy: IPUStrategyV1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    configure(tmp_path / "file")
    with pytest.raises(OSError):
        run(strategy, 2.0)
    configure()
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'file'}")
    with caplog.at_level(logging.WARNING, "ipu"):
        assert run(strategy, 2.0) == [2.0] * 3
    assert "Set executable_cache_path to a folder" in caplog.text


def test_the_passes_of_large_programs_are_kept_beside(
    strategy: IPUStrategyV1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.compile.FEWEST_KEPT", 0)
    monkeypatch.setattr(kept, "SHORTEST", 0.0)
    configure(tmp_path)
    assert run(strategy, 2.0) == [2.0] * 3
    assert list(tmp_path.glob("programs-*/*"))


def test_pre_compile_stores_and_returns_zeros(strategy: IPUStrategyV1, tmp_path: Path, kit: Kit) -> None:
    configure(tmp_path, DeviceConnectionType.PRE_COMPILE)
    with strategy.scope():
        layers = kit.keras.layers
        model = kit.keras.Sequential([layers.Input((5,), batch_size=2), layers.Dense(3, bias_initializer="ones")])
        model.compile("sgd", "mse", steps_per_execution=2)
        before = [weight.copy() for weight in model.get_weights()]
        x, y = np.ones((4, 5), np.float32), np.ones((4, 3), np.float32)
        history = model.fit(x, y, batch_size=2, epochs=2, verbose=0)
        assert not model.predict(x, batch_size=2, verbose=0).any()
    assert history.history["loss"] == [0.0, 0.0] and len(executables(tmp_path)) == 2
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_pre_compile_gives_one_row_of_zeros_to_an_outfeed(strategy: IPUStrategyV1, tmp_path: Path) -> None:
    configure(tmp_path, DeviceConnectionType.PRE_COMPILE)
    queue = IPUOutfeedQueue()
    strategy.run(compiled(lambda x: queue.enqueue(x)), args=(np.ones(3, np.float32),))
    assert queue.dequeue().numpy().tolist() == [[0.0, 0.0, 0.0]]


def test_pre_compile_needs_a_folder(strategy: IPUStrategyV1) -> None:
    configure(connection=DeviceConnectionType.PRE_COMPILE)
    with pytest.raises(tf.errors.FailedPreconditionError, match="executable_cache_path"):
        run(strategy, 2.0)


def test_what_was_compiled_before_is_found_when_it_is_run(strategy: IPUStrategyV1, tmp_path: Path) -> None:
    configure(tmp_path, DeviceConnectionType.PRE_COMPILE)
    assert run(strategy, 2.0) == [0.0] * 3
    stored = executables(tmp_path)
    configure(tmp_path, DeviceConnectionType.ON_DEMAND)
    assert run(strategy, 2.0) == [2.0] * 3
    assert executables(tmp_path) == stored


def test_never_compiles_and_does_not_run(strategy: IPUStrategyV1, tmp_path: Path) -> None:
    configure(tmp_path, DeviceConnectionType.NEVER)
    with pytest.raises(tf.errors.FailedPreconditionError, match="NEVER"):
        run(strategy, 2.0)
    assert len(executables(tmp_path)) == 1
