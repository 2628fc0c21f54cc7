"""Sessions that run programs: many runs, several threads, errors, and their end."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from tests.interrupting import PATIENCE_SECONDS

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def counter() -> tuple[Any, tf.Tensor]:
    variable = v1.get_variable("count", [], use_resource=True, initializer=v1.zeros_initializer())
    return variable, ipu.ipu_compiler.compile(lambda: variable.assign_add(1.0).read_value())[0]


def test_many_runs_and_sessions_leave_nothing_behind() -> None:
    variable, count = counter()
    read = variable.read_value()

    def work(runs: int) -> weakref.ReferenceType[Any]:
        with v1.Session() as session:
            session.run(variable.initializer)
            for _ in range(runs):
                session.run(count)
            assert session.run(read) == runs
            return weakref.ref(session)

    work(50)
    gc.collect()
    before = len(gc.get_objects())
    sessions = [work(1000), *(work(1) for _ in range(5))]
    gc.collect()
    assert len(gc.get_objects()) < before + 200
    assert [session() for session in sessions] == [None] * len(sessions)


def test_callables_run_programs_and_partial_runs_are_refused() -> None:
    x = v1.placeholder(tf.float32, [])
    variable = v1.get_variable("v", [], use_resource=True, initializer=v1.zeros_initializer())
    with v1.Session() as session:
        session.run(variable.initializer)
        read = session._make_callable_from_options(config_pb2.CallableOptions(fetch=[variable.value().name]))
        (total,) = ipu.ipu_compiler.compile(lambda y: variable.assign_add(y).read_value(), [x])
        add = session._make_callable_from_options(config_pb2.CallableOptions(feed=[x.name], fetch=[total.name]))
        for expected in (2, 4):
            assert add(np.float32(2)) == [expected]
            assert read() == [expected]
        assert session.make_callable(total, [x])(3.0) == 7
        with pytest.raises(UnsupportedOperation, match="partial run"):
            session.partial_run_setup([total], [x])
        assert read() == [7]


def test_threads_share_a_session() -> None:
    variable, count = counter()
    seen: list[float] = []
    with v1.Session() as session:
        session.run(variable.initializer)

        def work() -> None:
            for _ in range(50):
                session.run(count)
                seen.append(session.run(variable))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run(variable) == 150
    assert all(value == int(value) for value in seen)
    assert max(seen) == 150


def test_a_run_reads_and_assigns_in_the_order_of_control_dependencies() -> None:
    variable = v1.get_variable("v", [2], use_resource=True, initializer=v1.zeros_initializer())
    before = variable.assign([1.0, 2.0], read_value=False)
    with tf.control_dependencies([before]):
        (doubled,) = ipu.ipu_compiler.compile(lambda: variable.assign(variable * 2.0).read_value())
    with tf.control_dependencies([doubled]):
        after = variable.assign_add([1.0, 1.0], read_value=False)
    with v1.Session() as session:
        session.run(variable.initializer)
        for _ in range(2):
            np.testing.assert_array_equal(session.run([doubled, after])[0], [2, 4])
            np.testing.assert_array_equal(session.run(variable), [3, 5])


def test_a_failing_run_leaves_variables_alone() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(np.ones(5, np.float32))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    variable = v1.get_variable("v", [], use_resource=True, initializer=v1.zeros_initializer())
    program = ipu.ipu_compiler.compile(
        lambda: ipu.loops.repeat(3, lambda x: variable.assign_add(x).op, [], infeed_queue=infeed)
    )
    initialise = infeed.initializer
    with v1.Session() as session:
        session.run([variable.initializer, initialise])
        session.run(program)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(program)
        assert session.run(variable) == 3
        session.run(initialise)
        session.run(program)
        assert session.run(variable) == 6


def test_a_session_closed_while_a_program_runs() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def elements() -> Iterator[np.ndarray]:
        for number in range(4):
            if number == 2:
                begun.set()
                assert go_on.wait(PATIENCE_SECONDS)
            yield np.float32(number)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([], tf.float32))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    (total,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(4, lambda t, x: t + x, [0.0], infeed))
    initialise = infeed.initializer
    session = v1.Session()
    session.run(initialise)
    raised: list[Exception] = []

    def run() -> None:
        try:
            session.run(total)
        except Exception as error:
            raised.append(error)

    running = threading.Thread(target=run)
    running.start()
    assert begun.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=session.close)  # waits for the program
    closing.start()
    go_on.set()
    closing.join()
    running.join()
    assert not raised or isinstance(raised[0], tf.errors.CancelledError)
    with pytest.raises(RuntimeError, match="closed"):
        session.run(total)
    with v1.Session() as another:
        another.run(initialise)
        assert another.run(total) == 6


def test_a_benchmark_of_a_dataset_is_an_operation() -> None:
    dataset = tf.data.Dataset.range(10)
    benchmark = ipu.dataset_benchmark.dataset_benchmark
    measured = benchmark(dataset, number_of_epochs=2, elements_per_epochs=5, print_stats=False)
    too_short = benchmark(dataset, number_of_epochs=3, elements_per_epochs=5, print_stats=False)
    with v1.Session() as session:
        epochs = json.loads(session.run(measured)[0])["epochs"]
        assert [epoch["elements_processed"] for epoch in epochs] == [5, 5]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(too_short)
