"""A program of TensorFlow 1: no line for TensorFlow 2 or for this project, and a module beside it."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.keras.layers import Dense
from tensorflow.python.distribute import distribution_strategy_context
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, loops, scopes
from tensorflow.python.training import training_ops
from version1_module import model

assert sys.argv[1:] == ["--steps", "5"] and hasattr(distribution_strategy_context, "has_strategy")
assert hasattr(training_ops, "resource_apply_momentum")
X = np.arange(24).reshape(8, 3).astype(np.float) / 24  # noqa: NPY001
dataset = tf.data.Dataset.from_tensor_slices(X.astype(np.float32)).batch(2, drop_remainder=True).repeat()
iterator = dataset.make_initializable_iterator()
queue = ipu_infeed_queue.IPUInfeedQueue(dataset)


def train(row):
    loss = tf.reduce_mean(tf.square(model(row) - 1.0)) + tf.reduce_mean(Dense(1)(row)) * 0
    return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def body(total, row):
    loss, update = train(row)
    with tf.control_dependencies([update]):
        return total + loss


def copied():
    return tf.Variable(tf.get_variable("origin", initializer=[1.0, 2.0]).initialized_value(), name="copy") * 2.0


with tf.Session() as session:
    with scopes.ipu_scope("/device:IPU:0"):
        result = ipu_compiler.compile(lambda: loops.repeat(5, body, [0.0], queue))
        copy = ipu_compiler.compile(copied)
    weights = tf.trainable_variables()[0]
    first = weights.initialized_value() if hasattr(weights, "initialized_value") else weights
    session.run(tf.global_variables_initializer())
    np.testing.assert_array_equal(session.run(copy)[0], [2, 4])
    weights.load(np.full([3, 2], 0.25), session)
    session.run(queue.initializer)
    found = session.run(result)[0]
    w, total = np.full([3, 2], 0.25), 0.0
    for step in range(5):  # the same in NumPy
        x = X[2 * (step % 4) :][:2]
        error = (x @ w).sum(1) - 1
        total += (error**2).mean()
        w -= 0.1 * np.outer((error[:, None] * x).mean(0) * 2, [1, 1])
    np.testing.assert_allclose(found, total, rtol=1e-5)
    print("trained as in NumPy", tf.contrib.framework.nest.flatten([1, [2]]), tf.__version__ is not None)
