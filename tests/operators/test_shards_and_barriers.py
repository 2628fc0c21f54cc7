"""Collectives between shards, and barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import on_replicas

SHARDS = [np.float32([1, 2, 0, 4, 5]), np.float32([3, 0, 0, 7]), np.float32([2, 2, 1, 1, 1])]
STACKED = np.stack([np.pad(each, (0, 5 - len(each))) for each in SHARDS])
REDUCED = {
    "ADD": STACKED.sum(0),
    "MUL": STACKED.prod(0),
    "MIN": STACKED.min(0),
    "MAX": STACKED.max(0),
    "LOGICAL_AND": STACKED.all(0),
    "LOGICAL_OR": STACKED.any(0),
    "SQUARE_ADD": (STACKED**2).sum(0),
    "MEAN": STACKED.mean(0),
}
ops = ipu.within_replica_ops


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_collectives_within_a_replica(dtype: Any) -> None:
    def program(*inputs: tf.Tensor) -> list[Any]:
        placed = []
        for number, each in enumerate(inputs):
            with ipu.scopes.ipu_shard(number):
                placed.append(each * 1)
        reduced = [ops.all_reduce(placed, f"COLLECTIVE_OP_{name}") for name in REDUCED]
        scattered = [ops.reduce_scatter(placed, f"COLLECTIVE_OP_{name}") for name in (*REDUCED, "LOCAL")]
        return [ops.all_gather(placed), reduced, scattered]

    shards = [each.astype(dtype) for each in SHARDS]
    gathered, reduced, scattered = on_replicas(program, 1, *shards)
    for each in gathered:
        np.testing.assert_array_equal(each, np.concatenate(shards))
    local = [np.append(row, 0)[2 * n : 2 * n + 2] for n, row in enumerate(STACKED)]
    for (name, wanted), everywhere, slices in zip(REDUCED.items(), reduced, scattered, strict=False):
        rounded = wanted // 1 if name == "MEAN" and dtype == np.int32 else wanted
        assert len(everywhere) == len(slices) == 3
        for number in range(3):
            np.testing.assert_allclose(everywhere[number], rounded, rtol=1e-3)
            np.testing.assert_allclose(slices[number], np.append(rounded, 0)[2 * number : 2 * number + 2], rtol=1e-3)
    np.testing.assert_array_equal(scattered[-1], local)


def test_shards_that_are_refused() -> None:
    x = np.ones(3, np.float32)
    for call, message in (
        (lambda: ops.all_gather([x]), "two or more shards"),
        (lambda: ops.all_gather([x, x.astype(np.int32)]), "one type"),
        (lambda: ops.all_gather([x, x[None]]), "one rank"),
        (lambda: ops.all_reduce([x[None], x[None]]), "rank 1"),
        (lambda: ops.all_reduce([x, x], "COLLECTIVE_OP_LOCAL"), "one of COLLECTIVE_OP_ADD"),
        (lambda: ops.reduce_scatter([x, x], "ADD"), "one of COLLECTIVE_OP_ADD"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

    def twice_on_one(x: tf.Tensor) -> Any:
        with ipu.scopes.ipu_shard(1):
            return ops.all_gather([x * 1, x * 2])

    with pytest.raises(ValueError, match="on another IPU"):
        on_replicas(twice_on_one, 1, x)


@pytest.mark.parametrize("for_gradients", [False, True])
def test_barriers_keep_values_and_gradients(for_gradients: bool) -> None:
    def function(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            passed = ipu.control_flow_ops.barrier({"a": x * 2, "b": [y]}, for_gradients)
            single = ipu.control_flow_ops.barrier(x, for_gradients)
            total = tf.reduce_sum(passed["a"] * passed["b"][0] + single)
        return [total, *tape.gradient(total, [x, y])]

    x, y = np.float32([1, 2]), np.float32([3, 4])
    for total, for_x, for_y in (on_replicas(function, 1, x, y), function(tf.constant(x), tf.constant(y))):
        assert total == 25
        np.testing.assert_array_equal([for_x, for_y], [2 * y + 1, 2 * x])
