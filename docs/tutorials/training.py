# %% [markdown]
# # Train, and compare with plain Keras
#
# One line runs a Keras model on the engine. This notebook trains a network on scikit-learn's 1,797 handwritten digits,
# with the engine and with plain Keras. It compares what they learn and how long they take.

# %%
import time

import keras
import numpy as np
from sklearn.datasets import load_digits
from tensorflow.python import ipu

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
order = np.random.default_rng(0).permutation(len(images))
train, test = order[:1440], order[1440:]
images.shape, labels.shape

# %% [markdown]
# A function builds the model, so that it can be built twice. Nothing in it is about IPUs.


# %%
def make(**options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], **options)
    return model


with ipu.accelerate() as acceleration:
    fast = make()
models = {
    "plain Keras": make(),
    "plain, 32 steps at once": make(steps_per_execution=32),
    "plain, without XLA": make(steps_per_execution=32, jit_compile=False),
    "engine": fast,
}

# %% [markdown]
# The engine runs 32 steps in one call unless `compile` says otherwise. Plain Keras has this option, too. So we time it
# in three forms: as it is, with the same number of steps, and without XLA.
#
# The first epoch traces and compiles, for some seconds on a new machine. We time it apart.

# %%
for name, model in models.items():
    begin = time.perf_counter()
    model.fit(images[train], labels[train], verbose=0)
    print(f"{name:24} first epoch {time.perf_counter() - begin:.2f} s")

# %% [markdown]
# Then epochs of all models alternate, and the fastest of each counts, since other programs on the machine only make
# epochs longer. If they take the cores, as they did for the outputs kept here, the clock says little: threads that wait
# for each other wait longer. Processor time, summed over all threads, says what an epoch needs.

# %%
seconds = {name: [] for name in models}
for _ in range(10):
    for name, model in models.items():
        begin = np.array([time.perf_counter(), time.process_time()])
        model.fit(images[train], labels[train], verbose=0)
        seconds[name].append([time.perf_counter(), time.process_time()] - begin)
best = {name: np.min(times, axis=0) for name, times in seconds.items()}
for name, (clock, processor) in best.items():
    ratio = processor / best["engine"][1]
    print(f"{name:24} {clock * 1000:4.0f} ms an epoch; processor time {processor * 1000:4.0f} ms, {ratio:4.1f} times")

# %% [markdown]
# All have learnt the same, except for the order of floating-point sums and of the shuffled samples:

# %%
for name, model in models.items():
    loss, accuracy = model.evaluate(images[test], labels[test], verbose=0)
    print(f"{name:24} loss {loss:.3f}, accuracy {accuracy:.1%} of {len(test)} digits that it has not seen")

# %% [markdown]
# The engine refuses some operations. Models with them run with plain Keras after a warning, and `fallbacks` lists them:

# %%
acceleration.fallbacks

# %% [markdown]
# A network as small as this, in epochs of 45 steps, gains most, because plain Keras spends much of its time on
# beginning an epoch and a step. Larger models and longer epochs gain less: [other models](../performance.md) run 1.7 to
# 11 times as fast. What counts is your own model: `python -m ipu bench model.py:make` measures it. [More about the one
# line](../accelerate.md).
