"""A prediction that takes too long ends with its batch: the program's loop is left, and the next batch runs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from engine.serving.servable import open_servable
from ipu._internal.serving.export import export_single_step
from ipu.ipu_strategy import IPUStrategyV1
from tests.interrupting import living_workers, wait_for
from tests.serving.helpers import PATIENT, running

SOON = 0.5


def doubled(x: tf.Tensor) -> tf.Tensor:
    """x, doubled until its sum is at least 1; zeros never reach it."""
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 1.0, lambda y: (y + y,), (x,))[0]


def test_a_loop_that_does_not_end(strategy: IPUStrategyV1, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with strategy.scope():
        export_single_step(doubled, str(tmp_path / "1"), iterations=1, predict_step_signature=[tf.TensorSpec((1, 2))])
    servable = open_servable(tmp_path, "loop")
    with caplog.at_level(logging.WARNING, "ipu.serving"):
        servable.warm_up(SOON)
    assert "served without a first batch" in caplog.text and not living_workers()
    with running(tmp_path, replace(PATIENT, predict_timeout=SOON, batch_window=0.0), "loop") as client:
        for _ in range(2):
            status, answer = client.predict({"instances": [[0.0, 0.0]]})
            assert status == 504 and "within 0.5 seconds" in answer["error"]
        assert wait_for(lambda: not living_workers())
        good = {"instances": [[0.25, 0.25]]}
        assert wait_for(lambda: client.predict(good) == (200, {"predictions": [[0.5, 0.5]]}))
