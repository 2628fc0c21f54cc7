"""Run by two workers of TF_CONFIG: the documented loop in a graph, functions, Keras' fit, against whole batches."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, pipelining_ops, scopes
from tensorflow.python.ipu.config import IPUConfig
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

from ipu._internal.compiler.variables import IPUVariable

v1 = tf.compat.v1
SUM = tf.distribute.ReduceOp.SUM
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = IPUMultiWorkerStrategy(resolver)
workers, rank = strategy.num_replicas_in_sync, strategy.transport.rank
assert IPUMultiWorkerStrategy(resolver).transport is strategy.transport
config = IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
session_config = strategy.update_config_proto(v1.ConfigProto())
server = tf.distribute.Server(
    resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, config=session_config
)
random = np.random.default_rng(0)
x = random.normal(size=(workers, 8, 6)).astype(np.float32)
y = random.integers(0, 3, (workers, 8)).astype(np.int32)


def in_a_graph() -> None:
    """The documentation's custom training loop with pipelining, in a session of the worker's server."""
    with tf.Graph().as_default(), strategy.scope():
        dataset = tf.data.Dataset.from_tensor_slices((x[rank], y[rank])).batch(2, drop_remainder=True).repeat()
        infeed, outfeed = ipu_infeed_queue.IPUInfeedQueue(dataset), ipu_outfeed_queue.IPUOutfeedQueue()

        def first(rate: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
            kernel = v1.get_variable("first", [6, 4], use_resource=True)
            return rate, tf.nn.tanh(images @ kernel), labels

        def second(rate: tf.Tensor, partial: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
            logits = partial @ v1.get_variable("second", [4, 3], use_resource=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            return rate, tf.nn.compute_average_loss(losses)

        def optimizer(rate: tf.Tensor, loss: tf.Tensor) -> object:
            return pipelining_ops.OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(rate), loss)

        def model(rate: tf.Tensor) -> object:
            return pipelining_ops.pipeline(
                [first, second],
                gradient_accumulation_count=4,
                inputs=[rate],
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=optimizer,
            )

        def compiled(rate: tf.Tensor) -> object:
            with scopes.ipu_scope("/device:IPU:0"):
                return ipu_compiler.compile(model, inputs=[rate])

        with tf.device("cpu"):
            rate = v1.placeholder(np.float32, [])
        train = strategy.experimental_run_v2(compiled, args=[rate])
        loss = strategy.reduce(SUM, tf.reduce_mean(outfeed.dequeue()[1]))
        variables = v1.trainable_variables()
        with v1.Session(server.target, config=session_config) as session:
            session.run(infeed.initializer)
            session.run(v1.global_variables_initializer())
            weights, losses = session.run(variables), []
            for _ in range(3):
                session.run(train, {rate: 0.1})
                losses.append(session.run(loss))
            trained = session.run(variables)
    expected = []
    for _ in range(3):
        with tf.GradientTape() as tape:
            kernels = [tf.constant(each) for each in weights]
            tape.watch(kernels)
            logits = tf.nn.tanh(x.reshape(-1, 6) @ kernels[0]) @ kernels[1]
            total = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y.reshape(-1), logits=logits))
        expected.append(float(total))
        weights = [each - 0.1 * 4 * g.numpy() for each, g in zip(weights, tape.gradient(total, kernels), strict=True)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for one, other in zip(trained, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    print("graph agrees", flush=True)


def in_functions() -> None:
    """A training loop of functions on two replicas of each worker, with reductions on the host."""
    assert strategy.reduce(SUM, tf.constant([1.0, rank])).numpy().tolist() == [2, 1]
    assert float(strategy.reduce("MEAN", tf.constant(rank * 4.0), axis=None)) == 2
    with strategy.scope():
        kernel = tf.Variable(tf.random.normal([6]) + rank)
        optimizer = v1.train.GradientDescentOptimizer(0.01)
    start = strategy.reduce(SUM, kernel.read_value()).numpy() / workers
    assert np.array_equal(start, kernel.numpy())

    @tf.function(jit_compile=True)
    def step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.linalg.matvec(batch, kernel) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, kernel), kernel)])
        return loss

    rows = x.reshape(-1, 6)
    for _ in range(3):
        strategy.run(step, (x[rank],))
        start = start - 0.01 * 2 * (2 * (rows @ start)[:, None] * rows).mean(0)
    np.testing.assert_allclose(kernel.numpy(), start, rtol=1e-5)
    print("functions agree", flush=True)


def in_fit(framework: Any) -> None:
    """`fit` of one layer, with two replicas on each worker."""
    targets = x.sum(-1, keepdims=True)
    with strategy.scope():
        model = framework.Sequential([framework.layers.Dense(1, use_bias=False)])
        model.build((None, 6))
        model.compile(framework.optimizers.SGD(0.01), "mse", steps_per_execution=2)
        expected = model.get_weights()[0][:, 0]
        model.fit(x[rank], targets[rank], batch_size=2, epochs=2, shuffle=False, verbose=0)
        trained = model.get_weights()[0][:, 0]
    for begin in (0, 4, 0, 4):
        rows = x[:, begin : begin + 4].reshape(-1, 6)
        expected = expected - 0.01 * 2 * (2 * (rows @ expected - rows.sum(-1))[:, None] * rows).mean(0)
    np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=1e-6)
    every = strategy.transport.all_gather(trained)
    assert np.array_equal(every[0], every[1])
    print("fit agrees", flush=True)


def on_the_host() -> None:
    """A program returns gradients, with which an optimizer updates variables of the host."""
    on_host = IPUMultiWorkerStrategy(resolver, variables_on_host=True)
    with tf.Graph().as_default(), on_host.scope():
        kernel = v1.get_variable("kernel", [6], use_resource=True)

        def gradient(batch: tf.Tensor) -> tf.Tensor:
            return tf.gradients(tf.nn.compute_average_loss(tf.linalg.matvec(batch, kernel) ** 2), [kernel])

        def step(batch: tf.Tensor) -> tf.Operation:
            with scopes.ipu_scope("/device:IPU:0"):
                gradients = ipu_compiler.compile(gradient, [batch])
            with tf.device("/device:CPU:0"):
                return v1.train.GradientDescentOptimizer(0.1).apply_gradients([(gradients[0], kernel)])

        train = on_host.experimental_run_v2(step, [tf.constant(x[rank])])
        with v1.Session(server.target, config=session_config) as session:
            session.run(v1.global_variables_initializer())
            start = session.run(kernel)
            session.run(train)
            rows = x.reshape(-1, 6)
            expected = start - 0.1 * (2 * (rows @ start)[:, None] * rows).mean(0)
            np.testing.assert_allclose(session.run(kernel), expected, rtol=1e-4, atol=1e-6)
    with on_host.scope():
        assert not isinstance(tf.Variable(tf.zeros(3)), IPUVariable)
    print("host agrees", flush=True)


def in_an_estimator(folder: str) -> None:
    """`IPUEstimator` with two replicas on each worker; the second training continues from the chief's checkpoint."""

    def model(features: tf.Tensor, labels: tf.Tensor, mode: str, params: object) -> object:
        kernel = v1.get_variable("kernel", [6], use_resource=True)
        loss = tf.nn.compute_average_loss((tf.linalg.matvec(features, kernel) - labels) ** 2)
        optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(0.01))
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))

    def data(params: dict[str, int]) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices((x[rank], x[rank].sum(-1)))
        return rows.batch(params["batch_size"], drop_remainder=True).repeat()

    run = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=2, num_replicas=2, ipu_options=config)
    run_config = ipu.ipu_run_config.RunConfig(run, train_distribute=strategy)
    estimator = ipu.ipu_estimator.IPUEstimator(model, folder, run_config, params={}, train_batch_size=8)
    for _ in range(2):
        estimator.train(data, steps=2)
    expected = tf.train.load_variable(f"{folder}/model.ckpt-0", "kernel")
    for begin in (0, 4, 0, 4):
        rows = x[:, begin : begin + 4].reshape(-1, 6)
        expected = expected - 0.01 * (2 * (rows @ expected - rows.sum(-1))[:, None] * rows).mean(0)
    np.testing.assert_allclose(estimator.get_variable_value("kernel"), expected, rtol=1e-4)
    assert estimator.config.is_chief == (rank == 0)
    print("estimator agrees", flush=True)


in_a_graph()
in_functions()
on_the_host()
for framework in (keras, tf_keras):
    in_fit(framework)
in_an_estimator(sys.argv[1])
