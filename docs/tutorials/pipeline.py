# %% [markdown]
# # A pipeline, seen in its chart
#
# A pipeline puts the layers of a model on several IPUs. Micro-batches follow each other through its stages, and the
# gradients of all make one update. Here four stages train on handwritten digits.

# %%
import keras
import numpy as np
from sklearn.datasets import load_digits
from tensorflow.python import ipu

images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32)[:1536], labels[:1536].astype(np.int32)

config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

# %% [markdown]
# We assign layers to stages where we call them.


# %%
def make():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((64,))
    with keras.ipu.PipelineStage(0):
        x = keras.layers.Dense(64, "relu", name="first")(inputs)
    with keras.ipu.PipelineStage(1):
        hidden = keras.layers.Dense(256, "relu", name="wide")(x)
    with keras.ipu.PipelineStage(2):
        x = keras.layers.Add()([x, keras.layers.Dense(64, name="narrow")(hidden)])
    with keras.ipu.PipelineStage(3):
        outputs = keras.layers.Dense(10, name="last")(x)
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], steps_per_execution=24)
    return model


schedules = ipu.pipelining_ops.PipelineSchedule
with strategy.scope():
    model = make()
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=8, pipeline_schedule=schedules.Grouped, device_mapping=[0, 1, 2, 3]
    )
model.print_pipeline_stage_assignment_summary()

# %% [markdown]
# 64 batches of 24 digits, 8 of which make one update:

# %%
history = model.fit(images, labels, batch_size=24, epochs=20, verbose=0).history
print(f"loss {history['loss'][0]:.2f} to {history['loss'][-1]:.3f}, accuracy {history['accuracy'][-1]:.1%}")

# %% [markdown]
# The schedule is a table that says what each IPU does in each slot. A notebook draws it: forward passes, backward
# passes and the update, with the number of the micro-batch. Gaps are *bubbles*, in which the IPU waits.

# %%
model.get_pipeline_schedule()

# %% [markdown]
# The interleaved schedule alternates forward and backward passes. It keeps fewer activations, and takes as many slots
# here:

# %%
with strategy.scope():
    interleaved = make()
    interleaved.set_pipelining_options(
        gradient_accumulation_steps_per_replica=8, pipeline_schedule=schedules.Interleaved
    )
interleaved.fit(images, labels, batch_size=24, epochs=20, verbose=0)
interleaved.get_pipeline_schedule()

# %% [markdown]
# The order of the work differs, the arithmetic does not:

# %%
pairs = zip(model.get_weights(), interleaved.get_weights(), strict=True)
print("largest difference of a weight:", max(float(abs(a - b).max()) for a, b in pairs))

# %% [markdown]
# Which layers belong together? A plan balances the estimated cycles of the stages:

# %%
plan = model.plan_pipeline(4)

# %% [markdown]
# [The page on pipelining](../pipelining.md) has models inside models, subclasses, recomputation, and pipelines of
# functions without Keras.
