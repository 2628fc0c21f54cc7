"""Output while a model runs: progress bars, notices, and no warnings of other libraries."""

from __future__ import annotations

import errno
import io
import logging
import re
import sys
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from engine import compile_progress
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit

ESCAPES = re.compile(r"\x1b\[[0-9;]*m|\x08")
BAR = re.compile(r"(\d+)/(\d+)")


def printed(text: str) -> list[str]:
    """The lines and redrawn lines, without colours."""
    return [line for line in re.split(r"[\r\n]+", ESCAPES.sub("", text)) if line.strip()]


def bars(text: str) -> list[tuple[int, int]]:
    return [tuple(map(int, found.groups())) for line in printed(text) if (found := BAR.match(line.strip()))]


def model_with(kit: Kit, steps_per_execution: int) -> object:
    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.layers.Input((2,)), kit.keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    return model


def test_bars_never_run_past_their_end(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_with(kit, 50)
    x = np.ones((24, 2), np.float32)
    ends: list[int] = []
    end = kit.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))

    model.fit(x, x[:, :1], batch_size=4, epochs=2, callbacks=[end])
    model.evaluate(x, x[:, :1], batch_size=4)
    model.predict(x, batch_size=4)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)
    model.fit(data, shuffle=False, validation_data=data)

    drawn = bars(capsys.readouterr().out)
    assert len(drawn) >= 5
    assert all(done <= steps == 6 for done, steps in drawn), drawn
    assert ends == [5, 5]


def test_a_bar_of_unknown_length_counts_the_steps_made(capsys: pytest.CaptureFixture[str]) -> None:
    model = model_with(Kit(keras), 50)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(7):
            yield np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)

    with pytest.warns(UserWarning):
        model.fit(batches(), shuffle=False)
    out = capsys.readouterr().out
    assert "7/Unknown" in ESCAPES.sub("", out)
    assert bars(out)[-1] == (7, 7)


def test_a_notice_begins_a_line(kit: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    model = model_with(kit, 2)
    x = np.ones((18, 2), np.float32)
    both = io.StringIO()
    monkeypatch.setattr(sys, "stdout", both)
    handler = logging.StreamHandler(both)
    logging.getLogger("ipu").addHandler(handler)
    try:
        model.predict(x, batch_size=4)
    finally:
        logging.getLogger("ipu").removeHandler(handler)
    (notice,) = (line for line in both.getvalue().splitlines() if "Batches of another shape" in line)
    assert notice.startswith("Batches of another shape")


def test_nothing_is_said_of_a_chip_that_is_not_configured(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    model = model_with(kit, 2)
    x = np.ones((18, 2), np.float32)
    model.fit(x, np.ones((18, 1), np.int64), batch_size=4, verbose=0)
    assert not [record for record in caplog.records if record.name == "ipu" and record.levelno >= logging.WARNING]


def test_a_step_that_takes_long_to_trace_is_announced(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    for seconds, times in ((600, 0), (0, 1)):
        monkeypatch.setattr(compile_progress, "SLOW_SECONDS", seconds)
        model_with(kit, 2).fit(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32), batch_size=4, verbose=0)
        assert stream.getvalue().count(f"{compile_progress.TRACING}\n") == times


class Full(io.StringIO):
    """A stream whose disk is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", ["missing", "closed", "full"])
def test_notices_that_cannot_be_written_end_no_program(kind: str, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = {"missing": None, "closed": io.StringIO(), "full": Full()}[kind]
    if stream is not None and kind == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(compile_progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(compile_progress, "SLOW_SECONDS", 0)
    with compile_progress.compile_progress() as shown:
        shown.codelet("contract_f32")
    compile_progress._announce()
    assert "loss" in model_with(kit, 2).fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=4, verbose=0).history


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_of_the_compiler_fit_a_terminal(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(compile_progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(compile_progress, "REDRAW_SECONDS", 0)
    with compile_progress.compile_progress() as shown:
        shown.codelet("contract_f32")
        for number in range(1234):
            shown.generated("fused loop nests", number, 1234)
    lines = printed(stream.getvalue())
    assert max(map(len, lines)) < 80
    assert "contract_f32" not in stream.getvalue() and "nest" not in stream.getvalue()
    assert len(lines) == (1236 if terminal else 2)
    assert re.fullmatch(r"IPU: compiled in \d+\.\d s *", lines[-1])
    assert stream.getvalue().endswith("\n")
