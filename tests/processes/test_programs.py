"""Programs with replicas in several processes, here threads, give the results of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import ConfigurationError, ProcessError
from ipu._internal.compiler.processes import processes_of
from ipu._internal.compiler.trace import trace_step
from ipu._internal.processes import versions
from ipu.distributed.popdist_strategy import PopDistStrategy
from tests.collectives.running import OnReplicas, on_replicas
from tests.processes.threads import ThreadTransport, in_threads

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def collectives(x: tf.Tensor) -> list[tf.Tensor]:
    """Collectives of four replicas on values that differ, one of them in a loop."""
    every = lambda value: ipu.all_to_all_op.all_gather(value, 4)  # noqa: E731
    ops, own = ipu.cross_replica_ops, x * tf.cast(ipu.replication_ops.replication_index() + 1, x.dtype)
    flat = tf.reshape(own, [-1])
    total = tf.while_loop(lambda k, _: k < 3, lambda k, t: (k + 1, ops.cross_replica_mean(t * own)), [0, own])[1]
    return [
        *(every(ops.cross_replica_sum(own, replica_group_size=size)) for size in (None, 1, 2, 4)),
        every(ops.cross_replica_mean(own)),
        every(ipu.reduce_scatter_op.reduce_scatter(flat, 4, "COLLECTIVE_OP_MAX")),
        every(ipu.all_to_all_op.all_to_all(own, 0, 1, 4)),
        every(ops.assume_equal_across_replicas(own)),
        every(total),
    ]


class OnProcesses(OnReplicas):
    """A function that runs as the program of one of several processes."""

    def __init__(self, function: Callable[..., Any], replicas: int, transport: ThreadTransport, x: np.ndarray) -> None:
        module = trace_step(function, [tf.TensorSpec(x.shape, x.dtype)]).module
        super().__init__(function, replicas, x, processes=processes_of(module, transport))


@pytest.mark.parametrize(("processes", "replicas"), [(2, 2), (4, 1)])
def test_collectives_span_processes(processes: int, replicas: int) -> None:
    expected = on_replicas(collectives, 4, X)
    for found in in_threads(processes, lambda transport: OnProcesses(collectives, replicas, transport, X)(X)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_neighbouring_sums_are_one_call() -> None:
    total, mean = ipu.cross_replica_ops.cross_replica_sum, ipu.cross_replica_ops.cross_replica_mean

    def together(x: tf.Tensor) -> list[tf.Tensor]:
        one, count = total(x + 1), total(tf.constant(3))
        doubled = one * 2
        return [one, count, doubled, mean(x[:2] * 4), total(doubled)]

    def in_a_loop(x: tf.Tensor) -> list[tf.Tensor]:
        return tf.while_loop(lambda k, *_: k < 3, lambda k, a, b: (k + 1, total(a), total(b + 1)), [0, x, x])[1:]

    def between(x: tf.Tensor) -> list[tf.Tensor]:
        gathered = ipu.all_to_all_op.all_gather(total(x), 2)
        return [gathered, total(gathered), mean(x)]

    first, second, third = "float32[18]", "int32[1]", "float32[12]"  # a call of the transport has one dtype
    check_calls(together, [first, second, third])
    check_calls(in_a_loop, ["float32[24]"] * 3)
    check_calls(between, [third, "all_gather of float32[1, 4, 3]", "float32[36]"])


def check_calls(function: Callable[..., Any], expected: list[str]) -> None:
    """Asserts that two processes give the results of two replicas in one process, with these calls of the transport."""

    def work(transport: ThreadTransport) -> tuple[list[np.ndarray], list[str]]:
        return OnProcesses(function, 1, transport, X)(X), transport.calls

    results = on_replicas(function, 2, X)
    for found, calls in in_threads(2, work):
        for one, other in zip(found, results, strict=True):
            np.testing.assert_array_equal(one, other)
        assert [each.partition(" in program")[0].removeprefix("all_reduce in place of ") for each in calls] == expected


def test_groups_that_do_not_divide_all_replicas_are_refused() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return ipu.cross_replica_ops.cross_replica_sum(x, replica_group_size=3)

    with pytest.raises(ConfigurationError, match="divides the number of replicas, 4. Received: 3"):
        in_threads(2, lambda transport: OnProcesses(function, 2, transport, X))


def test_other_operations_are_another_program() -> None:
    def work(transport: ThreadTransport) -> None:
        change = tf.nn.relu if transport.rank else tf.math.tanh
        OnProcesses(lambda x: ipu.cross_replica_ops.cross_replica_sum(change(x)), 1, transport, X)(X)

    with pytest.raises(ProcessError, match="in program"):
        in_threads(2, work)


def test_input_pipelines_are_those_of_processes() -> None:
    strategy, contexts = PopDistStrategy(), []
    strategy.transport = ThreadTransport(1, 4, [None] * 4, threading.Barrier(4))
    strategy.distribute_datasets_from_function(contexts.append)
    assert (contexts[0].input_pipeline_id, contexts[0].num_input_pipelines) == (1, 4)


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = versions.versions()
    versions.check_versions(lambda mine: [mine, mine], 0)
    with pytest.raises(ProcessError, match="tensorflow .* in process 0 and 2.0 in process 1"):
        versions.check_versions(lambda mine: [mine, {**own, "tensorflow": "2.0"}], 0)


@pytest.mark.parametrize(("processes", "replicas"), [(2, 2), (4, 1)])
def test_generators_draw_as_replicas_of_one_process(processes: int, replicas: int) -> None:
    def drawing() -> Callable[..., Any]:
        with tf.device("/device:CPU:0"):
            generator = tf.random.Generator.from_seed(3)

        def function(x: tf.Tensor) -> tf.Tensor:
            return ipu.all_to_all_op.all_gather(x * generator.uniform([4, 3]), 4)

        return function

    expected = on_replicas(drawing(), 4, X)
    assert len(np.unique(expected)) == 45  # zero comes four times
    for found in in_threads(processes, lambda transport: OnProcesses(drawing(), replicas, transport, X)(X)):
        np.testing.assert_array_equal(found, expected)
