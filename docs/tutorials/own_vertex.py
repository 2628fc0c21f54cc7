# %% [markdown]
# # Your own vertex
#
# Your own operation is a Python function that Numba compiles. Each vertex gets its slice of the arrays, and all cores
# run vertices at once. Our example is GELU in one pass over the data, with its gradient, in a Keras layer.

# %%
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow.python import ipu

SCALE, CUBE = np.float32(0.7978845608), np.float32(0.044715)


# %% [markdown]
# The function has a parameter for each input, then one for each output, in which it writes. In an elementwise operation
# slices are one-dimensional.


# %%
@ipu.custom_ops.vertex
def gelu(x, out):
    for i in range(x.shape[0]):
        t = np.tanh(SCALE * (x[i] + CUBE * x[i] * x[i] * x[i]))
        out[i] = np.float32(0.5) * x[i] * (np.float32(1) + t)


# %% [markdown]
# A gradient takes its parameters by name: inputs, outputs, and `d_out`, the gradient of `out`.


# %%
@gelu.gradient
@ipu.custom_ops.vertex
def gelu_gradient(x, d_out, d_x):
    for i in range(x.shape[0]):
        t = np.tanh(SCALE * (x[i] + CUBE * x[i] * x[i] * x[i]))
        slope = (np.float32(1) - t * t) * SCALE * (np.float32(1) + np.float32(3) * CUBE * x[i] * x[i])
        d_x[i] = d_out[i] * np.float32(0.5) * (np.float32(1) + t + x[i] * slope)


# %% [markdown]
# Is it right? We compare values and gradient with TensorFlow's own GELU:

# %%
strategy = ipu.ipu_strategy.IPUStrategy()


@tf.function(jit_compile=True)
def value_and_gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


x = tf.constant(np.linspace(-4, 4, 1001, dtype=np.float32))
with strategy.scope():
    ours = strategy.run(value_and_gradient, args=[gelu, x])
theirs = value_and_gradient(lambda x: tf.nn.gelu(x, approximate=True), x)
for name, a, b in zip(("value", "gradient"), ours, theirs, strict=True):
    print(f"largest difference of the {name}: {np.abs(a - b).max():.1e}")

# %% [markdown]
# In a layer, it is an operation like any other. It trains like Keras' own activation:

# %%
images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)


def trained(activation):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.Input((64,)), keras.layers.Dense(128, activation), keras.layers.Dense(10, "softmax")]
        model = keras.Sequential(layers)
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=50)
        history = model.fit(images, labels, epochs=10, shuffle=False, verbose=0).history
    return model, history


for activation in (gelu, lambda x: keras.activations.gelu(x, approximate=True)):
    model, history = trained(activation)
    print(f"loss {history['loss'][-1]:.5f}, accuracy {history['accuracy'][-1]:.2%}")

# %% [markdown]
# The debug executor gives each vertex its own memory, and finds a vertex that reads or writes outside of its slice:

# %%
from engine.debug import debugging
from engine.errors import DebugError, VertexError


@ipu.custom_ops.vertex
def shifted(x, out):
    for i in range(x.shape[0]):
        out[i] = x[i + 1]


try:
    with strategy.scope(), debugging():
        strategy.run(tf.function(shifted, jit_compile=True), args=[x])
except (DebugError, VertexError) as error:
    print(str(error)[:300])

# %% [markdown]
# [Vertices of your own](../custom_vertices.md) has rows, whole arrays and reductions, estimates of cycles for reports,
# and functions of the host.
