"""Train a perceptron as programs of TensorFlow 1 do: with a graph, a loop compiled for the IPU, queues and a session.

python examples/tensorflow1.py [--checkpoints folder] [--updates 2000]

It works with and without the behaviour of version 2. A second run with the same folder goes on from the last
checkpoint.
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

BATCH, FEATURES, CLASSES, UPDATES_PER_RUN = 32, 64, 10, 500


def make_dataset() -> tf.data.Dataset:
    """An endless number of batches: inputs, float32 [32, 64], and labels, int32 [32]."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4096, FEATURES)).astype(np.float32)
    y = (x @ generator.normal(size=(FEATURES, CLASSES))).argmax(-1).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH, drop_remainder=True)


def dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """A fully connected layer."""
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE, use_resource=True):
        kernel = tf.get_variable("kernel", [x.shape[-1], units])
        return tf.matmul(x, kernel) + tf.get_variable("bias", [units], initializer=tf.zeros_initializer())


def training_step(x: tf.Tensor, y: tf.Tensor, outfeed: ipu.ipu_outfeed_queue.IPUOutfeedQueue) -> tf.Operation:
    """Make one update, then enqueue the loss and the accuracy of the batch."""
    logits = dense(tf.nn.relu(dense(x, 64, "hidden")), CLASSES, "logits")
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, global_step=tf.train.get_or_create_global_step())
    return tf.group(train, outfeed.enqueue({"loss": loss, "accuracy": accuracy}))


def main() -> None:
    """Read the command line, build the graph, train, print."""
    parser = argparse.ArgumentParser(description="Trains a perceptron as programs of TensorFlow 1 do.")
    parser.add_argument("--checkpoints", help="a folder for checkpoints")
    parser.add_argument("--updates", type=int, default=2000, help="the least global step at the end")
    options = parser.parse_args()
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(make_dataset())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def loop() -> tf.Operation:
            return ipu.loops.repeat(UPDATES_PER_RUN, lambda x, y: training_step(x, y, outfeed), [], infeed)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            program = ipu.ipu_compiler.compile(loop)
        results, initialize = outfeed.dequeue(), infeed.initializer
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=options.checkpoints, log_step_count_steps=None
        ) as session:
            session.run_step_fn(lambda step_context: step_context.session.run(initialize))
            updates = session.run(step)
            while updates < options.updates:
                session.run(program)
                updates, rows = session.run([step, results])
                loss, accuracy = rows["loss"].mean(), rows["accuracy"].mean()
                print(f"update {updates:5}: loss {loss:.4f}, accuracy {accuracy:6.1%}")


if __name__ == "__main__":
    main()
