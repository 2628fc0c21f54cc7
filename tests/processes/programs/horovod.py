"""Run in two processes: Horovod's names eagerly, in a session with the documented pipeline (Python API, 18.10), and in
an estimator."""

from __future__ import annotations

import sys

import numpy as np
import popdist
import popdist.tensorflow
import tensorflow as tf
from tensorflow.python.ipu import horovod as hvd
from tensorflow.python.ipu import (
    ipu_compiler,
    ipu_estimator,
    ipu_infeed_queue,
    ipu_outfeed_queue,
    ipu_run_config,
    pipelining_ops,
    scopes,
    utils,
)
from tensorflow.python.ipu.config import IPUConfig
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.horovod import ipu_horovod_strategy, ipu_multi_replica_strategy, popdist_strategy
from tensorflow.python.ipu.optimizers import CrossReplicaOptimizer

hvd.init()
rank = hvd.rank()
assert popdist_strategy.PopDistStrategy is PopDistStrategy
assert hvd.is_initialized() and (hvd.size(), hvd.local_size(), hvd.local_rank()) == (2, 2, rank)
own = np.float32([1, 2, 3]) + rank
assert hvd.allreduce(own).numpy().tolist() == [1.5, 2.5, 3.5]
assert hvd.allreduce(own, op=hvd.Sum).numpy().tolist() == [3, 5, 7]
assert hvd.allreduce(own, op=hvd.Max, prescale_factor=2.0).numpy().tolist() == [4, 6, 8]
assert hvd.allreduce(tf.constant([5, 6 + rank])).numpy().tolist() == [5, 6]
slices = hvd.allreduce(tf.IndexedSlices(tf.constant(own[:1]), tf.constant([rank]), tf.constant([4])))
assert slices.values.numpy().tolist() == [0.5, 1] and slices.indices.numpy().tolist() == [0, 1]
assert hvd.allgather(own[: rank + 1]).numpy().tolist() == [1, 2, 3]
assert hvd.broadcast(own, root_rank=1).numpy().tolist() == [2, 3, 4]
for call, error in (
    (lambda: hvd.allreduce(own, op=hvd.Adasum), NotImplementedError),
    (lambda: hvd.allreduce(own, op="mean of means"), ValueError),
    (lambda: hvd.broadcast(own, root_rank=2), ValueError),
    (lambda: hvd.allgather(1.0), ValueError),
    (lambda: ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=True), NotImplementedError),
):
    try:
        call()
    except error:
        continue
    raise AssertionError(error)

multi = ipu_multi_replica_strategy.IPUMultiReplicaStrategy()
config = multi.update_ipu_config(IPUConfig())
distribution = config.experimental.multi_replica_distribution
assert (distribution.process_count, distribution.process_index) == (2, rank)
assert multi.reduce("SUM", tf.constant(rank + 1.0), axis=None).numpy() == 3

with multi.scope():
    weight, optimizer = tf.Variable(own), tf.compat.v1.train.GradientDescentOptimizer(0.5)

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> tf.Tensor:
        """One update by the sum of the processes' gradients."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * x)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        return loss

    multi.run(step, args=(tf.constant([1.0, 0, 0]) * (rank + 1),))
assert weight.numpy().tolist() == [1 - 0.5 * 3, 2, 3], weight.numpy()

strategy = ipu_horovod_strategy.IPUHorovodStrategy()
COUNT = 8
with tf.Graph().as_default(), strategy.scope():
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(2, 4, 6)).astype(np.float32), random.integers(0, 3, (2, 4)).astype(np.int32)
    dataset = tf.data.Dataset.from_tensors((images[rank], labels[rank])).repeat()
    infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()

    def dense(x: tf.Tensor, name: str, units: int) -> tf.Tensor:
        """A dense layer with its own variable, whose initial value differs by process."""
        initial = np.random.default_rng(5 + rank).normal(size=(x.shape[1], units)).astype(np.float32)
        return x @ tf.compat.v1.get_variable(name, initializer=initial)

    def stage1(lr: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return lr, tf.nn.relu(dense(images, "first", 5)), labels

    def stage2(lr: tf.Tensor, partial: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, dense(partial, "second", 3))
        return lr, tf.nn.compute_average_loss(losses)

    def optimizer_function(lr: tf.Tensor, loss: tf.Tensor) -> pipelining_ops.OptimizerFunctionOutput:
        return pipelining_ops.OptimizerFunctionOutput(tf.compat.v1.train.GradientDescentOptimizer(lr), loss)

    def model(lr: tf.Tensor) -> tf.Operation:
        return pipelining_ops.pipeline(
            computational_stages=[stage1, stage2],
            gradient_accumulation_count=COUNT,
            inputs=[lr],
            infeed_queue=infeed_queue,
            outfeed_queue=outfeed_queue,
            optimizer_function=optimizer_function,
            name="Pipeline",
        )

    def compiled_model(lr: tf.Tensor) -> tf.Operation:
        with scopes.ipu_scope("/device:IPU:0"):
            return ipu_compiler.compile(model, inputs=[lr])

    with tf.device("cpu"):
        lr = tf.compat.v1.placeholder(np.float32, [])
    train_op = strategy.experimental_run_v2(compiled_model, args=[lr])
    _, per_worker_losses = outfeed_queue.dequeue()
    global_loss = strategy.reduce(tf.distribute.ReduceOp.SUM, tf.reduce_mean(per_worker_losses), axis=None)
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    utils.move_variable_initialization_to_cpu()
    found = []
    with tf.compat.v1.Session() as session:
        session.run(infeed_queue.initializer)
        session.run(tf.compat.v1.global_variables_initializer())
        weights = tf.compat.v1.global_variables()
        before = session.run(weights)
        for _ in range(4):
            session.run(train_op, {lr: 0.05 / COUNT})
            found.append(session.run(global_loss))
        after = session.run(weights)

first, second = before
expected = [np.random.default_rng(5).normal(size=each.shape).astype(np.float32) for each in before]
for value, initial in zip(before, expected, strict=True):
    np.testing.assert_array_equal(value, initial)  # the initial value of process 0
x, y = images.reshape(8, 6), labels.reshape(8)
losses = []
for _ in range(4):
    hidden = np.maximum(x @ first, 0)
    logits = hidden @ second
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    losses.append(-np.log(shares[np.arange(8), y]).mean())
    d = (shares - np.eye(3)[y]) / 8
    first, second = first - 0.05 * x.T @ (d @ second.T * (hidden > 0)), second - 0.05 * hidden.T @ d
np.testing.assert_allclose(found, losses, rtol=1e-4)
np.testing.assert_allclose(after[0], first, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(after[1], second, rtol=1e-4, atol=1e-5)

rows = np.random.default_rng(0).normal(size=(2, 8, 6)).astype(np.float32)


def linear(features: tf.Tensor, labels: tf.Tensor, mode: str, params: object) -> object:
    """A linear model with the mean squared error."""
    kernel = tf.compat.v1.get_variable("kernel", [6], use_resource=True)
    loss = tf.reduce_mean((tf.linalg.matvec(features, kernel) - labels) ** 2)
    optimizer = CrossReplicaOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.05))
    return ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def batches() -> tf.data.Dataset:
    """Batches of four rows of this process."""
    return tf.data.Dataset.from_tensor_slices((rows[rank], rows[rank].sum(-1))).batch(4, drop_remainder=True).repeat()


config = IPUConfig()
popdist.tensorflow.set_ipu_config(config)
run = ipu_run_config.IPURunConfig(iterations_per_loop=2, ipu_options=config)
run_config = ipu_run_config.RunConfig(run, train_distribute=PopDistStrategy())
estimator = ipu_estimator.IPUEstimator(linear, sys.argv[1], run_config, params={})
estimator.train(batches, steps=2)
kernel = tf.train.load_variable(f"{sys.argv[1]}/model.ckpt-0", "kernel")
for begin in (0, 4):
    both = rows[:, begin : begin + 4].reshape(-1, 6)
    kernel = kernel - 0.05 * (2 * (both @ kernel - both.sum(-1))[:, None] * both).mean(0)
np.testing.assert_allclose(estimator.get_variable_value("kernel"), kernel, rtol=1e-4)
print("Horovod agrees", flush=True)
