# %% [markdown]
# # Read a report, and make a model fit
#
# Each tile of a chip has its own memory. The engine estimates how much of it a program would need, and refuses a
# program that would not fit. In this notebook you meet such a refusal, and read the report to get past it.

# %%
import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()


def make():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((128, 128, 3))], name="images")
    for number, channels in enumerate((32, 64, 128)):
        model.add(keras.layers.Conv2D(channels, 3, padding="same", activation="relu", name=f"conv{number}"))
        model.add(keras.layers.MaxPooling2D())
    model.add(keras.layers.GlobalAveragePooling2D())
    model.add(keras.layers.Dense(10))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, steps_per_execution=4)
    return model


with ipu.ipu_strategy.IPUStrategy().scope():
    model = make()

# %% [markdown]
# `ipu.profile` compiles a training step for a batch of 128, without running it. The error names the largest arrays, and
# remedies with new estimates:

# %%
from engine.errors import OutOfTileMemory

try:
    ipu.profile(model, batch_size=128, path="refused.html")
except OutOfTileMemory as error:
    print(error)

# %% [markdown]
# The report is written nevertheless, as a page and as data. In a notebook it shows its charts:

# %%
from engine.report import Report

refused = Report.load("refused.json")
refused

# %% [markdown]
# Activations grow with the batch. So we use smaller micro-batches and accumulate their gradients. They need less memory
# at once, and make the same update of 128 samples:

# %%
reports = {}
for micro_batch in (64, 32):
    with ipu.ipu_strategy.IPUStrategy().scope():
        smaller = make()
        smaller.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=128 // micro_batch)
    reports[micro_batch] = report = ipu.profile(smaller, batch_size=micro_batch, path=None)
    mk2 = next(target for target in report.data["targets"] if target["name"] == "ipu2")
    print(f"{micro_batch:3} at once: {mk2['peak_bytes']:,} bytes a tile, {mk2['samples_per_second']:,.0f} samples/s")

# %% [markdown]
# Smaller micro-batches fill the chip's matrix engines less. So the largest one that fits is a good choice, here 64. The
# report says what its step costs, and which operations are worth a change:

# %%
reports[64]

# %% [markdown]
# On this machine there is no such limit. `ipu.allow_out_of_memory()` runs programs that no chip would hold, and
# `ipu.accelerate()` checks no chip's memory. [Reports](../report.md) explains each section, and
# [memory](../chip_memory.md) says where the estimates come from.
