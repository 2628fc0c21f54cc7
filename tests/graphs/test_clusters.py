"""Operations on an IPU outside of programs: sessions compile and execute them there, as a plain graph computes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from ipu._internal.graphs.sessions import programs_of

v1 = tf.compat.v1
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(8, 6)).astype(np.float32)
IMAGES = RANDOM.normal(size=(2, 8, 8, 3)).astype(np.float32)
LABELS = np.arange(8, dtype=np.int32) % 3
IPU = "/device:IPU:0"
Scope = Callable[[], contextlib.AbstractContextManager[Any]]
Program = Callable[[Scope], tuple[Any, dict[Any, Any]]]
"""Function that builds a graph in a scope, and returns the tensors to fetch and the values to feed."""


def weights(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 7 - 3).reshape(shape).astype(np.float32) / 5


def variable(name: str, *shape: int) -> Any:
    return v1.get_variable(name, initializer=weights(*shape), use_resource=True)


def loss_of(x: Any) -> Any:
    hidden = tf.nn.relu(x @ variable("w", 6, 5) + variable("b", 5))
    logits = hidden @ variable("v", 5, 3)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=logits))


def trained(optimizer: Callable[[], Any]) -> Program:
    def program(scope: Scope) -> Any:
        x = v1.placeholder(tf.float32, [8, 6])
        with scope():
            loss = loss_of(x)
            step = optimizer().minimize(loss, global_step=v1.train.get_or_create_global_step())
        return [loss, step], {x: X}

    return program


def trained_outside_of_the_scope(scope: Scope) -> Any:
    """Gradients and updates are placed on the device of their operations and variables."""
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        loss = loss_of(x)
    with tf.control_dependencies([loss]):
        after = tf.constant(3.0)
    return [v1.train.GradientDescentOptimizer(0.1).minimize(loss), loss, after], {x: X}


def of_unknown_batch(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [None, 6])
    with scope():
        return tf.reshape(tf.nn.softmax(x @ variable("w", 6, 4)), [-1, 2]), {x: X}


def convolutions(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [2, 8, 8, 3])
    with scope():
        y = tf.nn.conv2d(x, variable("kernel", 3, 3, 3, 4), 2, "SAME")
        y, mean, _ = v1.nn.fused_batch_norm(y, tf.ones(4), tf.zeros(4), epsilon=1e-3)
        kept = variable("kept", 4)
        moved = v1.assign_sub(kept, 0.1 * (kept - mean))
        y = tf.nn.max_pool2d(y, 2, 2, "VALID")
    return [y, moved], {x: IMAGES}


def the_host_between(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y = tf.exp(x)
    y = tf.numpy_function(lambda array: 2 * array, [y], tf.float32)
    y.set_shape([8, 6])
    with scope():
        z = tf.sqrt(y)
    total = tf.reduce_sum(z)
    with scope():
        return [z * total, v1.Print(z, [total], "z") - 1.0], {x: X}


def fed_in_the_middle(scope: Scope) -> Any:
    with scope():
        x = tf.sin(tf.constant(X))
        y = tf.exp(x)
        z = y + x
    return [z], {y: np.abs(X)}


def branches(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: tf.sin(x) - 1.0)
        z = tf.cond(tf.reduce_sum(x) <= 0, lambda: tf.exp(x), lambda: tf.sin(x) - 1.0)
    return [y, z * 2.0], {x: X}


def loops(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        w = variable("w", 6, 6)
        _, y = tf.while_loop(lambda k, _: k < 3, lambda k, y: [k + 1, tf.tanh(y @ w)], [0, x])
    return [y], {x: X}


def loops_of_the_host(scope: Scope) -> Any:
    """Builds a loop on the host, whose operands inside and outside are results of the device."""
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y, z = tf.sin(x), tf.exp(-x)
    _, sums = tf.while_loop(lambda k, _: k < 3, lambda k, total: [k + 1, total + z], [0, y])
    with scope():
        return [tf.exp(sums)], {x: X}


def branches_of_the_host(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y, z = tf.sin(x), tf.exp(-x)
    _, steps = tf.while_loop(lambda k, _: k < 3, lambda k, total: [k + 1, total + x], [0, x])
    chosen = [tf.cond(y[0, 0] < z[0, k], lambda: y + 1.0, lambda: z - 1.0) for k in range(3)]
    with scope():
        return [tf.exp(chosen[0]) + steps, chosen], {x: X}


def assigned_after(scope: Scope) -> Any:
    """Builds an assignment on the host of a value that the device computes, and operations that wait for it."""
    with scope():
        w = variable("w", 4)
        with tf.control_dependencies([v1.assign(w, w * 3.0)]):
            y = tf.exp(w.read_value())
        with tf.control_dependencies([y, v1.assign_add(w, y)]):
            return [tf.identity(w.read_value()), y], {}


def summaries(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        loss = loss_of(x)
    v1.summary.scalar("loss", loss)
    return [v1.summary.merge_all()], {x: X}


def functions(scope: Scope) -> Any:
    inner = tf.function(lambda x: tf.exp(x) + 1.0)
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        w = variable("w", 6)
        return [inner(x) * 2.0, tf.function(lambda x: inner(x) - w)(x)], {x: X}


def reference_variables(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    w = v1.get_variable("w", initializer=weights(6, 2), use_resource=False)
    with scope():
        y = x @ w
    return [y, v1.assign_add(w, tf.ones_like(w) * tf.reduce_sum(y))], {x: X}


def rows_of_a_table(scope: Scope) -> Any:
    """Sums the gradients of equal ids by tf.unique: updates on the host and in later programs need the result."""
    ids, x = v1.placeholder(tf.int32, [5]), v1.placeholder(tf.float32, [8, 6])
    with scope():
        rows = tf.nn.embedding_lookup(variable("table", 9, 6), ids) - x[:5]
        chosen = tf.boolean_mask(x, x[:, 0] > 0)
        steps = [
            v.minimize(tf.reduce_sum(rows**2)) for v in (v1.train.AdamOptimizer(0.1), v1.train.RMSPropOptimizer(0.1))
        ]
    return [steps, chosen * 2.0, tf.reduce_sum(chosen)], {ids: [1, 4, 1, 0, 4], x: X}


def optimizers() -> list[Program]:
    v = v1.train
    return [
        trained(lambda: v.GradientDescentOptimizer(0.1)),
        trained(lambda: v.MomentumOptimizer(0.1, 0.9, use_nesterov=True)),
        trained(lambda: v.AdamOptimizer(0.01)),
        trained(lambda: v.RMSPropOptimizer(0.01)),
    ]


PROGRAMS = [*optimizers(), trained_outside_of_the_scope, of_unknown_batch, convolutions, the_host_between]
PROGRAMS += [
    rows_of_a_table,
    fed_in_the_middle,
    branches_of_the_host,
    assigned_after,
    summaries,
    functions,
    reference_variables,
]


IN_VERSION_2 = [branches, loops, loops_of_the_host]
"""Programs whose control flow consists of functions."""


def values_of(program: Program, scope: Scope, steps: int = 3) -> tuple[list[Any], int]:
    """The results fetched in each step and the variables at the end, and the number of programs."""
    with tf.Graph().as_default() as graph:
        fetches, fed = program(scope)
        with v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
            session.run(v1.global_variables_initializer())
            found = [session.run(fetches, fed) for _ in range(steps)]
            found.append(session.run(v1.global_variables()))
        return found, len(programs_of(graph).made)


def same(received: Any, expected: Any) -> None:
    for one, other in zip(tf.nest.flatten(received), tf.nest.flatten(expected), strict=True):
        if isinstance(other, bytes):
            one, other = (v1.Summary.FromString(each).value[0].simple_value for each in (one, other))
        if other is not None:
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.fixture
def control_flow_v2() -> Iterator[None]:
    was_on = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    yield
    (v1.enable_control_flow_v2 if was_on else v1.disable_control_flow_v2)()


@pytest.mark.parametrize("program", IN_VERSION_2)
def test_control_flow_of_version_2(program: Program, control_flow_v2: None) -> None:
    received, programs = values_of(program, lambda: ipu.scopes.ipu_scope(IPU))
    assert programs > 0
    same(received, values_of(program, contextlib.nullcontext)[0])


@pytest.mark.parametrize("program", IN_VERSION_2)
def test_control_flow_of_version_1_is_refused(program: Program, control_flow_v2: None) -> None:
    v1.disable_control_flow_v2()
    with pytest.raises(UnsupportedOperation, match="enable_control_flow_v2"):
        values_of(program, lambda: ipu.scopes.ipu_scope(IPU))


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_a_plain_graph(program: Program) -> None:
    received, programs = values_of(program, lambda: ipu.scopes.ipu_scope(IPU))
    expected, none = values_of(program, contextlib.nullcontext)
    assert programs > 0 and none == 0
    same(received, expected)


def test_half_precision_rounds_and_overflows_as_in_programs() -> None:
    config = ipu.config.IPUConfig()
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.ON
    config.configure_ipu_system()
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4000])
        with ipu.scopes.ipu_scope(IPU):
            y = tf.cast(x, tf.float16)
        rounded = session.run(y, {x: np.full(4000, 0.1)})
    assert len(np.unique(rounded)) == 2 and abs(rounded.astype(np.float64).mean() - 0.1) < 2e-6


def test_sums_over_replicas() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [3])
        with ipu.scopes.ipu_scope(IPU):
            y = ipu.cross_replica_ops.cross_replica_sum(x) + 1.0
        with pytest.raises(ValueError, match="in a tf.Graph into the scope of an IPU device"):
            ipu.cross_replica_ops.cross_replica_sum(x)
        received = session.run(y, {x: [1, 2, 3]})
    np.testing.assert_array_equal(np.asarray(received).reshape(-1, 3)[0], [3, 5, 7])


def test_only_what_is_fetched_is_executed() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        with ipu.scopes.ipu_scope(IPU):
            w = variable("w", 4)
            y, step = tf.exp(w), v1.assign_add(w, tf.ones(4))
        session.run(w.initializer)
        for _ in range(2):
            np.testing.assert_allclose(session.run(y), np.exp(weights(4)), rtol=1e-6)
        session.run(step)
        np.testing.assert_allclose(session.run(y), np.exp(weights(4) + 1), rtol=1e-6)
        session.run(w.assign(np.zeros(4, np.float32)))
        np.testing.assert_array_equal(session.run([y, w]), [np.ones(4), np.zeros(4)])


def test_callables_monitored_sessions_and_partial_runs(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [8, 6])
        with ipu.scopes.ipu_scope(IPU):
            loss = loss_of(x)
            step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
        with v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_steps=2) as session:
            losses = [session.run([loss, step], {x: X})[0] for _ in range(3)]
        assert losses[0] > losses[1] > losses[2]
        with v1.Session() as session:
            v1.train.Saver().restore(session, str(tmp_path / "model.ckpt-3"))
            fetched = session.make_callable(loss, [x])
            np.testing.assert_allclose(fetched(X), session.run(loss, {x: X}))
            assert fetched(X) < losses[2]
            with pytest.raises(UnsupportedOperation, match="a partial run"):
                session.partial_run_setup([loss], [x])


def test_two_devices() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.configure_ipu_system()

    def program(second: str) -> Any:
        def build(scope: Scope) -> Any:
            x = v1.placeholder(tf.float32, [8, 6])
            with scope():
                y = tf.exp(x)
            with tf.device(second):
                z = tf.sin(y)
            with scope():
                return [z + y], {x: X}

        return build

    received, programs = values_of(program("/device:IPU:1"), lambda: ipu.scopes.ipu_scope(IPU))
    assert programs == 3
    same(received, values_of(program("/device:CPU:0"), contextlib.nullcontext)[0])


def test_operations_without_a_kernel_stay_on_the_host_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [3])
        with ipu.scopes.ipu_scope(IPU):
            w = v1.get_variable("w", [3], use_resource=True)
            inside = ipu.ipu_compiler.compile(lambda x: tf.sin(x) * w, [x])
            cluster = tf.exp(x) + w
            left = tf.numpy_function(lambda array: array, [cluster], tf.float32)
            pooled = tf.nn.fractional_max_pool(IMAGES, [1, 2, 2, 1], name="no_kernel")[0]
            text = tf.strings.as_string(cluster)
        with caplog.at_level("WARNING", "ipu"):
            session.run(v1.global_variables_initializer())
            session.run([inside, cluster, left, text], {x: [1, 2, 3]})
            assert "no_kernel" not in caplog.text and "PyFunc" not in caplog.text
            for _ in range(2):
                session.run(pooled)
        assert caplog.text.count("without a kernel of the compiler") == 1 and "no_kernel" in caplog.text


def test_what_cannot_be_compiled_is_refused() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        with ipu.scopes.ipu_scope(IPU):
            y = tf.exp(tf.ones([3]))
            strange = v1.where(y > 1.0)
        with tf.control_dependencies([y]):
            random = tf.random.normal([3])
        with pytest.raises(UnsupportedOperation, match="random numbers of the host"):
            session.run(random)
        with (
            pytest.raises(RuntimeError, match="enqueue inside.*a tf.Graph. Call it in the function given to"),
            ipu.scopes.ipu_scope(IPU),
        ):
            ipu.ipu_outfeed_queue.IPUOutfeedQueue().enqueue(y)
        np.testing.assert_array_equal(session.run(strange), [[0], [1], [2]])
