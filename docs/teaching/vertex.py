# %% [markdown]
# # Laboratory 3: a vertex of your own
#
# Operations that TensorFlow does not have, or that it makes of many small ones, can be a vertex: a Python function
# that is compiled for the tiles. Each vertex gets its slice of the arrays.
#
# Take 20 minutes. [The notebook with solutions](vertex_solutions.ipynb) has answers.

# %%
import os

os.environ["TF_POPLAR_FLAGS"] = "--use_ipu_model"

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from engine.debug import debugging
from engine.errors import DebugError, VertexError

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.ipu_model.tiles_per_ipu = 8
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

# %% [markdown]
# ## A first vertex
#
# `squared_relu` is x squared where x is positive, else 0. The vertex has a parameter for each input, then one for each
# output. `cycles` declares what a worker thread of the chip would need for its slice; reports take it from there.


# %%
@ipu.custom_ops.vertex(cycles=lambda x: 20 + 2 * x.shape[0])
def squared_relu(x, out):
    for i in range(x.shape[0]):
        positive = max(x[i], np.float32(0))
        out[i] = positive * positive


@squared_relu.gradient
@ipu.custom_ops.vertex(cycles=lambda x, d_out: 20 + 3 * x.shape[0])
def squared_relu_gradient(x, d_out, d_x):
    for i in range(x.shape[0]):
        d_x[i] = np.float32(2) * max(x[i], np.float32(0)) * d_out[i]


# %% [markdown]
# Is it right? We compare its values and its gradient with TensorFlow's:


# %%
def value_and_gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


def compared(ours, theirs, x):
    """The largest differences of the value and the gradient."""
    with strategy.scope():
        found = strategy.run(tf.function(value_and_gradient), args=[ours, x])
    expected = value_and_gradient(theirs, x)
    return [float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(found, expected, strict=True)]


x = tf.constant(np.linspace(-3, 3, 4096, dtype=np.float32))


def of_tensorflow(x):
    return tf.nn.relu(x) ** 2


compared(squared_relu, of_tensorflow, x)

# %% [markdown]
# What would it take on the chip, beside TensorFlow's two operations?

# %%
for function in (squared_relu, of_tensorflow):
    report = ipu.profile(tf.function(function), x, path=None)
    print({row["name"]: row["compute"] for row in report.data["operations"]})

# %% [markdown]
# ## A vertex that is wrong
#
# On the debug executor each vertex has its slice alone. A vertex that reads beyond it is found, with the element:


# %%
@ipu.custom_ops.vertex
def difference(x, out):
    for i in range(x.shape[0]):
        out[i] = x[i + 1] - x[i]


try:
    with strategy.scope(), debugging(tiles=8):
        strategy.run(tf.function(difference), args=[x])
except (DebugError, VertexError) as error:
    print(str(error)[:400])

# %% [markdown]
# ## The last exercise
#
# **Exercise.** Write softmax over the rows of a matrix as a vertex, with its gradient. `split={"x": "rows", "out":
# "rows"}` gives a vertex whole rows, as arrays with two dimensions. (a) Subtract the largest value of a row before
# `np.exp`, so that nothing overflows. (b) With y = softmax(x), the gradient is d_x = y (d_out - sum of y d_out). The
# gradient's vertex takes `out` and `d_out` by name. (c) Compare both with `tf.nn.softmax`. (d) Run it on the debug
# executor: are there exchanges? (e) Declare its cycles, and see it in a report. (f) Train a model with it as the
# activation of the last layer.


# %% tags=["solution"]
@ipu.custom_ops.vertex(
    split={"x": "rows", "out": "rows"},
    outputs=lambda x: [x],
    cycles=lambda x: 20 + x.shape[0] * (30 + 8 * x.shape[1]),
)
def softmax(x, out):
    for row in range(x.shape[0]):
        largest, total = x[row, 0], np.float32(0)
        for column in range(1, x.shape[1]):
            largest = max(largest, x[row, column])
        for column in range(x.shape[1]):
            out[row, column] = np.exp(x[row, column] - largest)
            total += out[row, column]
        for column in range(x.shape[1]):
            out[row, column] /= total


@softmax.gradient
@ipu.custom_ops.vertex(
    split={"out": "rows", "d_out": "rows", "d_x": "rows"},
    outputs=lambda out, d_out: [out],
    cycles=lambda out, d_out: 20 + out.shape[0] * (30 + 4 * out.shape[1]),
)
def softmax_gradient(out, d_out, d_x):
    for row in range(out.shape[0]):
        dot = np.float32(0)
        for column in range(out.shape[1]):
            dot += out[row, column] * d_out[row, column]
        for column in range(out.shape[1]):
            d_x[row, column] = out[row, column] * (d_out[row, column] - dot)


matrix = tf.constant(np.random.default_rng(0).normal(size=(512, 64)).astype(np.float32) * 30)
with strategy.scope(), debugging(tiles=8) as session:
    strategy.run(tf.function(softmax), args=[matrix])
print("bytes between tiles:", session.records[0].step_bytes)
print({row["name"]: row["compute"] for row in ipu.profile(tf.function(softmax), matrix, path=None).data["operations"]})

# %% tags=["solution"]
weights = tf.constant(np.random.default_rng(1).random((512, 64), np.float32))


def weighted(x):
    return softmax(x) * weights


def of_tensorflow_weighted(x):
    return tf.nn.softmax(x) * weights


print(compared(weighted, of_tensorflow_weighted, matrix))

# %% tags=["solution"]
data = np.random.default_rng(2).random((512, 8), np.float32)
labels = data[:, :3].argmax(axis=1).astype(np.int32)
with strategy.scope():
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(3, softmax)]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=16)
history = model.fit(data, labels, batch_size=32, epochs=20, verbose=0).history
print(f"loss {history['loss'][0]:.2f} to {history['loss'][-1]:.2f}, accuracy {history['accuracy'][-1]:.0%}")

# %% [markdown]
# [Vertices of your own](../custom_vertices.md) has reductions and functions of the host, and [the
# tutorials](../tutorials/) lead on.
