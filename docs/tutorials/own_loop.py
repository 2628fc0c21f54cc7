# %% [markdown]
# # Your own training loop, with queues
#
# `fit` is one way to run steps. Another is a `tf.function` that you give to `strategy.run`. Its loop runs on the device
# from the first step to the last. An infeed queue brings batches in, and an outfeed queue brings results out while it
# runs.

# %%
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow.python import ipu

images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=1).repeat()
dataset = dataset.batch(32, drop_remainder=True)
dataset.element_spec

# %% [markdown]
# Create variables, also those of the optimizer, before the loop and in the strategy's scope.

# %%
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    optimizer = keras.optimizers.Adam(0.003)
    optimizer.build(model.trainable_variables)
    losses_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# %% [markdown]
# The loop takes a batch with `next`, and enqueues a row of results in each step.

# %%
with strategy.scope():
    infeed = iter(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


@tf.function(jit_compile=True)
def train(steps, batches):
    for _ in tf.range(steps):
        x, y = next(batches)
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = losses_of(y, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y)
        outfeed.enqueue({"loss": loss, "accuracy": tf.reduce_mean(tf.cast(right, tf.float32))})


# %% [markdown]
# One call runs 500 steps. Variables stay on the device. The next call continues with the data where this one stopped.

# %%
with strategy.scope():
    for _ in range(4):
        strategy.run(train, args=[tf.constant(500), infeed])
        rows = outfeed.dequeue()
        loss, accuracy = (float(tf.reduce_mean(rows[name])) for name in ("loss", "accuracy"))
        print(f"{len(rows['loss'])} rows: loss {loss:.4f}, accuracy {accuracy:.1%}")

# %% [markdown]
# You can read an outfeed while the program runs. Here a thread prints every 2,500th row of a long call.

# %%
import threading
import time


def print_rows(steps):
    seen = 0
    while seen < steps:
        for row in outfeed:  # those that have arrived
            if seen % 2500 == 0:
                print(f"step {seen}: loss {float(row['loss']):.6f}")
            seen += 1
        time.sleep(0.01)


with strategy.scope():
    reader = threading.Thread(target=print_rows, args=[10_000], daemon=True)
    reader.start()
    strategy.run(train, args=[tf.constant(10_000), infeed])
    reader.join()

# %% [markdown]
# The loop trained the model's own weights, so the model predicts with them, also on the engine:

# %%
predictions = model.predict(images, batch_size=len(images), verbose=0).argmax(1)
print(f"{(predictions == labels).mean():.1%} of all digits")

# %% [markdown]
# [Loops and queues](../loops.md) has the rules: static shapes, how many elements are read ahead, and the end of a data
# set.
