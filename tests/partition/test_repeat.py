"""A step of many micro-batches gives the results of a NumPy loop over them."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import shape_of
from engine.ir.verifier import verify
from engine.partition.accumulation import Accumulation
from engine.partition.repeat import repeat
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.feeds import RowFeed
from tests.partition.steps import METRICS, ONCE, RANDOM, RATE, ROLES, State, linear_step, numpy_update

CASES = [
    (1, 1, "sum"),
    (2, 1, "sum"),
    (8, 1, "mean"),
    (3, 1, "running_mean"),
    (1, 2, "sum"),
    (1, 4, "mean"),
    (2, 3, "sum"),
    (4, 2, "mean"),
    (5, 2, "running_mean"),
]


def buffers(values: list[np.ndarray]) -> list[DeviceBuffer]:
    made = [DeviceBuffer(shape_of(value)) for value in values]
    for buffer, value in zip(made, values, strict=True):
        buffer.write(value)
    return made


@pytest.mark.parametrize("executable", [compile_module, EvaluatedExecutable])
@pytest.mark.parametrize(("steps", "replicas", "reduction"), CASES)
def test_updates_equal_a_numpy_loop(executable, steps: int, replicas: int, reduction) -> None:
    rng = np.random.default_rng(steps * 10 + replicas)
    batch, inputs, outputs, updates = 3, 5, 2, 2
    accumulation = Accumulation(steps, replicas, reduction)
    step = linear_step(batch, inputs, outputs)
    repeated = repeat(step, ROLES, accumulation, once=ONCE, metrics=METRICS, random=RANDOM)
    verify(repeated.module)
    count = updates * accumulation.micro_batches
    x = rng.normal(size=(count, batch, inputs)).astype(np.float32)
    target = rng.normal(size=(count, batch, outputs)).astype(np.float32)
    scale = rng.uniform(0.5, 1.5, count).astype(np.float32)
    weights = rng.normal(size=(inputs, outputs)).astype(np.float32)
    moving = rng.normal(size=inputs).astype(np.float32)
    rate = np.float32(0.1)

    state = State(weights.astype(float), 4, 2.0, np.stack([moving.astype(float)] * replicas), 5, np.full(replicas, 7))
    for update in range(updates):
        part = slice(update * accumulation.micro_batches, (update + 1) * accumulation.micro_batches)
        state, mean = numpy_update(state, x[part], target[part], scale[part], 0.1, accumulation)

    values = [weights, np.int64(4), np.float32(2), moving, np.int32(5), np.int64(7)]
    rows = [np.stack([values[number - 3]] * replicas) for number in repeated.rows]
    held = buffers([*map(np.asarray, values), *rows])
    program = executable(repeated.module, repeated.roles, {RATE: rate})
    feeds = [RowFeed(x.reshape(-1, inputs)), RowFeed(target.reshape(-1, outputs)), RowFeed(scale)]
    last_mean, step = program.run(updates, feeds, held)

    assert len(repeated.rows) == (2 if replicas > 1 else 0)
    new = [buffer.read() for buffer in held]
    expected = [state.weights, state.iteration, state.total, state.moving[0], state.seed, state.iterations[0]]
    if replicas > 1:
        expected += [state.moving, state.iterations]
    for received, value in zip(new, expected, strict=True):
        np.testing.assert_allclose(received, value, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(last_mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(step, 0.1 * state.iteration, rtol=1e-6)
