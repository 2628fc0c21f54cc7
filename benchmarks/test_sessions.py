"""Milliseconds of a Session.run of a small program, with few and many bytes of variables, and of TensorFlow's sum."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_compiler import compile as compile_program

RUNS, ROUNDS = 200, 10
v1 = tf.compat.v1


def least(run: Callable[[], Any]) -> float:
    """Milliseconds of a run, in the fastest round."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(RUNS):
            run()
        rounds.append((time.perf_counter() - start) / RUNS * 1e3)
    return round(min(rounds), 3)


@pytest.mark.parametrize("rows", [1, 25_000])
def test_session_run(rows: int) -> None:
    """The promise is less than 0.4 ms, for any size of the variables (4 kB a row)."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [1000])
        table = v1.get_variable("table", [rows, 1000], use_resource=True, initializer=v1.zeros_initializer())
        (program,) = compile_program(lambda x: (tf.reduce_sum(x), v1.scatter_add(table, [0], x[None]).op), [x])
        plain, feeds = tf.reduce_sum(x), {x: np.ones(1000, np.float32)}
        with v1.Session() as session:
            session.run(table.initializer)
            print(
                {"program": least(lambda: session.run(program, feeds)), "sum": least(lambda: session.run(plain, feeds))}
            )
