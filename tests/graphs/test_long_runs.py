"""A session runs a program many times, and programs of many shapes, in the same memory; bounds are printed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.runtime.executable import Executable
from ipu._internal import recent_programs
from tests.exploring import seed
from tests.keras.test_soak import alive, allocated

v1 = tf.compat.v1
RUNS = 400 if seed() is None else 20_000


@pytest.mark.explore
def test_many_runs_of_a_session() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4, 3])
        total = v1.get_variable("total", [3], initializer=v1.zeros_initializer(), use_resource=True)

        def step(x: tf.Tensor) -> tf.Tensor:
            return total.assign_add(tf.reduce_sum(x, 0)) + 0.0

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (result,) = ipu.ipu_compiler.compile(step, [x])
        session.run(v1.global_variables_initializer())
        batch = np.ones((4, 3), np.float32)

        def run(count: int) -> None:
            for _ in range(count):
                session.run(result, {x: batch})

        run(50)
        start = allocated()
        run(RUNS)
        blocks, size = ((new - old) / RUNS for new, old in zip(allocated(), start, strict=True))
        print(f"{RUNS} runs: {blocks:.2f} blocks and {size:.0f} bytes a run")
        np.testing.assert_array_equal(session.run(total), np.full(3, 4.0 * (RUNS + 50), np.float32))
        assert blocks < 1 and size < 200


def test_many_shapes_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_programs, "MOST_PROGRAMS", 3)
    before = alive(Executable)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (result,) = ipu.ipu_compiler.compile(lambda x: tf.reduce_sum(x, 0), [x])
        for rows in (1, 2, 3, 4, 5, 6, 5, 4, 1, 6):
            np.testing.assert_array_equal(session.run(result, {x: np.ones((rows, 3), np.float32)}), np.full(3, rows))
            assert alive(Executable) - before <= 3


def test_many_shapes_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_programs, "MOST_PROGRAMS", 3)
    before = alive(Executable)
    strategy = ipu.ipu_strategy.IPUStrategy()
    total = tf.function(lambda x: tf.reduce_sum(x, 0))
    for rows in (1, 2, 3, 4, 5, 6, 5, 4, 1, 6):
        result = strategy.run(total, (tf.ones((rows, 3)),))
        np.testing.assert_array_equal(result, np.full(3, rows))
        assert alive(Executable) - before <= 3
