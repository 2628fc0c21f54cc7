"""A MonitoredTrainingSession that is killed goes on from its last checkpoint."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python import tf2

from tests import forking
from tests.graphs.programs import preempted
from tests.graphs.programs.on_host import check, trained_on_host

v1 = tf.compat.v1


@pytest.mark.explore
def test_a_killed_monitored_session_goes_on(tmp_path: Path) -> None:
    behavior = [] if tf2.enabled() else ["--without-v2-behavior"]
    arguments = (str(tmp_path), "12", "--killed-after", "7", *behavior)
    status, output = forking.run(forking.module, "tests.graphs.programs.preempted", *arguments)
    assert status == -signal.SIGKILL, output
    saved = tf.train.load_checkpoint(str(tmp_path)).get_tensor("global_step")
    assert 5 <= saved < 8  # before the seventh, or after it if the hook that saves came first
    assert preempted.train(str(tmp_path), 12, []) == list(range(saved, 12))
    theirs, _ = trained_on_host(preempted.error, preempted.optimizer, preempted.BATCHES)
    reader = tf.train.load_checkpoint(str(tmp_path))
    check({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}, theirs, 1e-3)
