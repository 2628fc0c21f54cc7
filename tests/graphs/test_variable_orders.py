"""Programs and operations of the host on the same variables, ordered by control dependencies, beside TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.exploring import sample

v1 = tf.compat.v1
ACTIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a.assign(a * 2.0 + b).read_value(),
    lambda a, b: b.assign_sub(a * 0.5).read_value(),
    lambda a, b: v1.scatter_update(a, [0], b[:1]).read_value(),
    lambda a, b: a.read_value() + 0.0,
    lambda a, b: a.read_value() * b.read_value(),
]


def chain(steps: list[tuple[str, int]], places: bool) -> tuple[list[Any], list[Any]]:
    """The variables, and the results of the steps, each after the one before; all on the host if not `places`."""
    variables = [v1.get_variable(name, initializer=np.float32(value), use_resource=True) for name, value in VALUES]
    results: list[Any] = []
    for place, number in steps:
        action = ACTIONS[number]
        with tf.control_dependencies(results[-1:]):
            if place == "program" and places:
                results += ipu.ipu_compiler.compile(lambda action=action: action(*variables))
                continue
            with tf.device("/device:IPU:0") if place == "device" and places else contextlib.nullcontext():
                results.append(action(*variables))
    return variables, results


VALUES = [("a", [1, 2, 3]), ("b", [-1, 0.5, 2])]


@pytest.mark.parametrize("seed", sample(range(400), 40))
def test_each_step_has_the_values_of_the_one_before(seed: int) -> None:
    generator = np.random.default_rng(seed)
    places = ["program", "host", "device"][: 2 + seed % 2]
    count = int(generator.integers(2, 7))
    steps = [(str(generator.choice(places)), int(generator.integers(len(ACTIONS)))) for _ in range(count)]
    found = []
    for placed in (False, True):
        with tf.Graph().as_default(), v1.Session() as session:
            variables, results = chain(steps, placed)
            session.run(v1.global_variables_initializer())
            found.append([session.run([results, variables[:0]])[0] for _ in range(3)] + [session.run(variables)])
            found[-1].append(session.run(results[-1]))
    for ours, plain in zip(tf.nest.flatten(found[1]), tf.nest.flatten(found[0]), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6, err_msg=str(steps))
