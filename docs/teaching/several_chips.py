# %% [markdown]
# # Laboratory 2: memory, and several chips
#
# A tile has 624 KiB of memory, and there is nothing behind it. Programs that are too large for it keep fewer values
# and compute them again, or use several chips: one after the other, as a *pipeline*, or side by side, as *replicas*.
#
# Take 30 minutes. Chips have 16 tiles here. [The notebook with solutions](several_chips_solutions.ipynb) has answers.

# %%
import os

os.environ["TF_POPLAR_FLAGS"] = "--use_ipu_model"

import keras
import numpy as np
from tensorflow.python import ipu

from engine.errors import OutOfTileMemory

TILES, LAYERS, WIDTH = 16, 8, 128


def configured(ipus=1, recompute=False):
    """The strategy of a system with so many chips."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.ipu_model.tiles_per_ipu = TILES
    config.allow_recompute = recompute
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def build():
    """Eight layers on 128 features."""
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((WIDTH,))
    for number in range(LAYERS):
        x = keras.layers.Dense(WIDTH, "tanh", name=f"layer{number}")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="head")(x))
    model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=4)
    return model


def estimated(batch, recompute=False):
    """The report on a training step."""
    with configured(recompute=recompute).scope():
        model = build()
    x, y = np.zeros((4 * batch, WIDTH), np.float32), np.zeros((4 * batch, 1), np.float32)
    return ipu.profile(model, x, y, batch_size=batch, path=None)


# %% [markdown]
# ## Memory against recomputation
#
# The backward pass of a layer needs the values of its forward pass. They wait on the tiles meanwhile: look at the
# second picture, the bytes on the chip over the step.

# %%
estimated(512)

# %% [markdown]
# With `allow_recompute` few of them are kept. The others are dropped, and computed again when the backward pass
# reaches them:

# %%
for recompute in (False, True):
    made = estimated(512, recompute)
    peak, cycles = made.data["memory"]["peak_fullest"], made.data["cycles"]["total"]
    print(f"recomputation {recompute!s:5}: {peak:,} bytes on the fullest tile, {cycles:,} cycles")

# %% [markdown]
# A program that does not fit raises `OutOfTileMemory`, which says what would help:

# %%
try:
    estimated(2048)
except OutOfTileMemory as error:
    print(error)

# %% [markdown]
# **Exercise 1.** Find the largest multiple of 256 as the batch that fits, without recomputation and with it. How many
# samples per second does each reach? They are in `made.data["speed"]["samples_per_second"]`. When does it pay?

# %% tags=["solution"]
for recompute in (False, True):
    speed = None
    for batch in range(1024, 4096, 256):
        try:
            speed = estimated(batch, recompute).data["speed"]
        except OutOfTileMemory:
            break
    size, rate = speed["samples_per_step"], speed["samples_per_second"]
    print(f"recomputation {recompute!s:5}: batch {size}, {rate:,.0f} samples/s")
# It pays for models or batches that do not fit otherwise: a sample takes more cycles.

# %% [markdown]
# ## A pipeline's bubbles
#
# Four chips have two layers each. Micro-batches follow each other through the stages, and the gradients of all make
# one update. The first chip has work at once, the last one only when the first micro-batch has come through: gaps are
# *bubbles*.


# %%
def pipelined(micro_batches):
    """A model of four stages, and the report on an update."""
    with configured(4).scope():
        keras.utils.set_random_seed(1)
        x = inputs = keras.Input((WIDTH,))
        for stage in range(4):
            with keras.ipu.PipelineStage(stage):
                x = keras.layers.Dense(WIDTH, "tanh", name=f"first{stage}")(x)
                x = keras.layers.Dense(WIDTH, "tanh", name=f"second{stage}")(x)
        model = keras.Model(inputs, x)
        model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=micro_batches)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=micro_batches,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
        )
    data = np.zeros((32 * micro_batches, WIDTH), np.float32)
    return model, ipu.profile(model, data, data, batch_size=32, path=None)


model, report = pipelined(8)
model.get_pipeline_schedule()

# %%
print(f"bubbles: {report.data['pipeline']['bubble_share']:.1%} of the cycles before the update")

# %% [markdown]
# **Exercise 2.** If all stages took equally long, S stages and M micro-batches would leave bubbles of (S - 1) / (M + S
# - 1). Compare this with reports for 8, 16 and 32 micro-batches. Why are theirs larger, and what do more micro-batches
# cost?

# %% tags=["solution"]
for micro_batches in (8, 16, 32):
    made = pipelined(micro_batches)[1].data
    share, peak = made["pipeline"]["bubble_share"], made["memory"]["peak_fullest"]
    ideal = 3 / (micro_batches + 3)
    print(f"{micro_batches:2} micro-batches: {share:.1%}, by the formula {ideal:.1%}; fullest tile {peak:,} bytes")
# The formula takes stages for equal: the slowest one makes the others wait. An update comes later. Memory does not
# grow: how many micro-batches are on their way depends on the number of stages.

# %% [markdown]
# ## Data parallel scaling
#
# Replicas train side by side, each on its own samples, and add up their gradients after each step. The samples per
# second grow with the replicas, less the time for that sum:

# %%
rows = estimated(256).data["scaling"]["rows"]
for row in rows:
    print(
        f"{row['replicas']:5} replicas: {row['samples_per_second']:13,.0f} samples/s, "
        f"efficiency {row['efficiency']:.0%}, sum of gradients {row['gradient_share']:.0%} of the time"
    )

# %% [markdown]
# **Exercise 3.** At which number of replicas does the efficiency fall below 90 %? How does that change with a batch of
# 64 and of 1,024 for each replica? Which quantity decides?

# %% tags=["solution"]
for batch in (64, 256, 1024):
    rows = estimated(batch).data["scaling"]["rows"]
    few = next((row["replicas"] for row in rows if row["efficiency"] < 0.9), "more than 1,024")
    print(f"batch {batch:4}: efficiency below 90 % from {few} replicas on")
# The sum of gradients depends on the weights alone. The more samples a replica has for it, the less it matters.

# %% [markdown]
# **Exercise 4.** Replicas give the same weights as one large batch, but for the order of sums. Train this model with
# one replica on batches of 64 and with four on batches of 16, and compare the weights. Gradients of replicas are
# summed, and each is a mean over its samples: what must the learning rate be?


# %% tags=["solution"]
def trained(replicas):
    with configured(replicas).scope():
        model = build()
        model.compile(keras.optimizers.SGD(0.01 / replicas), "mse", steps_per_execution=4)
        x = np.random.default_rng(5).random((256, WIDTH), np.float32)
        model.fit(x, x[:, :1], batch_size=64 // replicas, shuffle=False, verbose=0)
    return model.get_weights()


pairs = zip(trained(1), trained(4), strict=True)
print("largest difference of a weight:", max(float(abs(one - other).max()) for one, other in pairs))

# %% [markdown]
# Next: [a vertex of your own](vertex.ipynb).
