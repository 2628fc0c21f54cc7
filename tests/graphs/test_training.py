"""Training in a tf.Graph: loops, pipelines, replicas, accumulation, shards, layers and monitored sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation

v1 = tf.compat.v1
FEATURES = np.random.default_rng(1).normal(size=(64, 5)).astype(np.float32)
LABELS = (FEATURES.sum(1, keepdims=True) > 0).astype(np.float32)


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def configure(ipus: int | list[int]) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def batches(size: int = 4) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(size, drop_remainder=True).repeat()


def variable(name: str, shape: list[int]) -> Any:
    value = np.linspace(-0.5, 0.5, int(np.prod(shape))).reshape(shape)
    return v1.get_variable(name, shape, initializer=v1.constant_initializer(value), use_resource=True)


def hidden(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.tanh(x @ variable("w1", [5, 3]))


def loss_of(h: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=h @ variable("w2", [3, 1])))


def on_host(updates: int, batch: int, optimizer: Any) -> list[np.ndarray]:
    """The weights after training by TensorFlow, on the first rows of the data."""
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, [batch, 5]), v1.placeholder(tf.float32, [batch, 1])
        train = optimizer().minimize(loss_of(hidden(x), y))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for update in range(updates):
                rows = np.arange(update * batch, (update + 1) * batch) % len(FEATURES)
                session.run(train, {x: FEATURES[rows], y: LABELS[rows]})
            return session.run(v1.trainable_variables())


def momentum() -> Any:
    return v1.train.MomentumOptimizer(0.1, 0.9)


def in_session(program: Any, infeed: Any, runs: int = 1) -> list[np.ndarray]:
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        for _ in range(runs):
            session.run(program)
        return session.run(v1.trainable_variables())


def check(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-6)


def test_a_loop_with_an_infeed() -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches())

    def body(loss: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> Any:
        loss = loss_of(hidden(x), y)
        with tf.control_dependencies([momentum().minimize(loss)]):
            return tf.identity(loss)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        program = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(10, body, [0.0], infeed))
    check(in_session(program, infeed, runs=2), on_host(20, 4, momentum))


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
def test_a_pipeline(schedule: str) -> None:
    ops = ipu.pipelining_ops
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    rate = v1.placeholder_with_default(0.1, [])

    def model(rate: tf.Tensor) -> tf.Operation:
        return ops.pipeline(
            [lambda rate, x, y: (rate, hidden(x), y), lambda rate, h, y: (rate, loss_of(h, y))],
            gradient_accumulation_count=4,
            repeat_count=3,
            inputs=[rate],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda rate, loss: ops.OptimizerFunctionOutput(
                v1.train.MomentumOptimizer(rate, 0.9), loss
            ),
            pipeline_schedule=ops.PipelineSchedule[schedule],
            reduction_method="mean",
        )

    configure(2)
    program = ipu.ipu_compiler.compile(model, [rate])
    losses = outfeed.dequeue()[1]
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        assert session.run(program) is None
        assert session.run(losses).shape == (12,)
        check(session.run(v1.trainable_variables()), on_host(3, 16, momentum))


@pytest.mark.parametrize("argument", ["apply_gradients_args", "apply_gradients_kwargs"])
def test_arguments_of_a_pipelines_optimizer(argument: str) -> None:
    """The variables of `var_list` train alone, and the step counts that is passed by position or by name."""
    ops, step = ipu.pipelining_ops, v1.train.get_or_create_global_step()
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def optimizer(loss: tf.Tensor) -> Any:
        given: Any = {argument: {"global_step": step} if argument.endswith("kwargs") else [step]}
        given["compute_gradients_kwargs"] = {"var_list": [v for v in v1.trainable_variables() if v.op.name == "w2"]}
        return ops.OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(0.1), loss, **given)

    def model() -> Any:
        stages = [lambda x, y: (hidden(x), y), loss_of]
        return ops.pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed, optimizer_function=optimizer)

    configure(2)
    program = ipu.ipu_compiler.compile(model)
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        before = session.run(v1.trainable_variables())
        session.run(program)
        after = session.run(v1.trainable_variables())
        assert session.run(step) == 1
    assert [np.array_equal(*pair) for pair in zip(before, after, strict=True)] == [True, False]


def test_replicas_that_accumulate_gradients() -> None:
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    optimizers, step = ipu.optimizers, v1.train.get_or_create_global_step()

    def body(x: tf.Tensor, y: tf.Tensor) -> Any:
        inner = optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(0.05))
        loss = loss_of(hidden(x), y)
        train = optimizers.GradientAccumulationOptimizerV2(inner, 2).minimize(loss, global_step=step)
        return outfeed.enqueue(loss), train

    program = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(4, body, [], infeed))
    configure(2)  # after the graph has been built
    losses = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(program)
        assert session.run(losses).shape == (4, 2)
        assert session.run(step) == 2
        # Sums over two batches of means over two replicas are twice the gradients of the four batches' mean.
        check(session.run(v1.trainable_variables()), on_host(2, 16, lambda: v1.train.GradientDescentOptimizer(0.1)))


def test_a_sharded_model_leaves_the_other_ipus_to_replicas() -> None:
    configure(4)
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x: tf.Tensor, y: tf.Tensor) -> Any:
        with ipu.scopes.ipu_shard(0):
            h = hidden(x)
        with ipu.scopes.ipu_shard(1):
            loss = loss_of(h, y)
        inner = ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(0.1))
        return outfeed.enqueue(loss), ipu.sharded_optimizer.ShardedOptimizer(inner).minimize(loss)

    program = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, body, [], infeed))
    losses = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(program)
        assert session.run(losses).shape == (3, 2)
        check(session.run(v1.trainable_variables()), on_host(3, 8, lambda: v1.train.GradientDescentOptimizer(0.1)))


def test_the_second_device() -> None:
    with ipu.scopes.ipu_scope("/device:IPU:1"):  # configured later
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(device_ordinal=1)
        program = ipu.ipu_compiler.compile(lambda x: (x + 1.0, outfeed.enqueue(x)), [tf.constant(2.0)])
    with v1.Session() as session:
        with pytest.raises(ValueError, match="ordinal"):
            session.run(program)
        configure([1, 2])
        rows = outfeed.dequeue()
        assert session.run(program) == [3.0]
        np.testing.assert_array_equal(session.run(rows), [[2, 2]])


def test_layers_of_tf_keras() -> None:
    x = v1.placeholder(tf.float32, [4, 6, 5])

    def net(x: tf.Tensor) -> Any:
        layers = tf_keras.layers
        h = layers.LSTM(3)(layers.BatchNormalization()(x, training=True))
        loss = tf.reduce_mean(layers.Dense(1)(h) ** 2)
        return loss, v1.train.AdamOptimizer(0.1).minimize(loss)

    (loss,) = ipu.ipu_compiler.compile(net, [x])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run(loss, {x: np.resize(FEATURES, [4, 6, 5])}) for _ in range(20)]
        moving = next(v for v in v1.global_variables() if "moving_variance" in v.name)
        assert losses[-1] < losses[0]
        assert (session.run(moving) != 1).all()


def test_the_global_step_is_one_variable_wherever_it_is_first_used() -> None:
    def body(x: tf.Tensor) -> Any:
        rate = v1.train.exponential_decay(0.5, v1.train.get_or_create_global_step(), 1, 0.5)
        loss = tf.reduce_sum(x * variable("w", [1]))
        train = v1.train.GradientDescentOptimizer(rate).minimize(loss, v1.train.get_or_create_global_step())
        with tf.control_dependencies([train]):
            return x + 1.0

    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        (looped,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, body, [1.0]))
        (once,) = ipu.ipu_compiler.compile(body, [1.0])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run([looped, once]) == [4, 2]
        assert session.run(v1.train.get_global_step()) == 4
        assert len(v1.global_variables()) == 2


def test_a_gradient_of_a_loop_without_bound_is_refused() -> None:
    def gradient() -> Any:
        return tf.gradients(tf.while_loop(lambda y: y < 9.0, lambda y: y * variable("w", []), [1.0]), variable("w", []))

    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        result = ipu.ipu_compiler.compile(gradient)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(UnsupportedOperation, match="Give tf.while_loop maximum_iterations"):
            session.run(result)


def test_a_gradient_of_another_dtype_is_to_be_cast() -> None:
    def step() -> Any:
        half = v1.get_variable("half", [4], tf.float16, use_resource=True)
        return v1.train.GradientDescentOptimizer(0.1).apply_gradients([(tf.ones([4]), half)])

    result = ipu.ipu_compiler.compile(step)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(UnsupportedOperation, match=r"dtype, float16. Received: float32.*tf.cast\(gradient"):
            session.run(result)


def test_updates_that_are_not_returned_are_refused() -> None:
    def both() -> Any:
        loss = tf.reduce_sum(variable("w", [3]) ** 2)
        optimizer = v1.train.AdamOptimizer(0.1)
        return loss, [optimizer.minimize(loss), optimizer.minimize(-loss)]

    def one() -> Any:
        loss, (descend, _) = both()
        return loss, descend

    def only_loss(total: tf.Tensor) -> tf.Tensor:
        return total + both()[0]

    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        for net in (one, lambda: both()[0], lambda: ipu.loops.repeat(2, only_loss, [0.0])):
            with pytest.raises(ValueError, match="return the training operations"):
                ipu.ipu_compiler.compile(net)
        ipu.ipu_compiler.compile(lambda: [(result := both())[0], *result[1]])


def test_printed_tensors(capfd: pytest.CaptureFixture[str]) -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        ipu.internal_ops.print_tensor(x, name="counted")
        return x + 1.0

    (last,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, body, [0.0]))
    with v1.Session() as session:
        assert session.run(last) == 3
    assert [line.split()[-1] for line in capfd.readouterr().err.splitlines() if "counted" in line] == [
        "0.0",
        "1.0",
        "2.0",
    ]


def test_a_monitored_session_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    seen = []
    for last in (3, 5):
        with tf.Graph().as_default():
            x, y = v1.placeholder(tf.float32, [16, 5]), v1.placeholder(tf.float32, [16, 1])
            step = v1.train.get_or_create_global_step()

            def net(x: tf.Tensor, y: tf.Tensor, step: Any = step) -> Any:
                loss = loss_of(hidden(x), y)
                return loss, momentum().minimize(loss, global_step=step)

            (loss,) = ipu.ipu_compiler.compile(net, [x, y])
            weights = v1.trainable_variables()
            hooks = [v1.train.StopAtStepHook(last_step=last), v1.train.NanTensorHook(loss)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), save_checkpoint_steps=2, hooks=hooks, log_step_count_steps=None
            ) as session:
                while not session.should_stop():
                    update = len(seen)
                    rows = np.arange(update * 16, (update + 1) * 16) % len(FEATURES)
                    seen.append(session.run(loss, {x: FEATURES[rows], y: LABELS[rows]}))
            with v1.Session() as after:
                v1.train.Saver().restore(after, tf.train.latest_checkpoint(str(tmp_path)))
                trained = after.run(weights)
    assert len(seen) == 5
    check(trained, on_host(5, 16, momentum))
