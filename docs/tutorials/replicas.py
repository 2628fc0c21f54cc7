# %% [markdown]
# # Replicas and gradient accumulation
#
# There are two ways to a larger batch. *Replicas* are copies of a program that train side by side and sum their
# gradients. *Accumulation* sums the gradients of several micro-batches, one after the other. Both make one update from
# many samples.

# %%
import keras
import numpy as np
from sklearn.datasets import load_digits
from tensorflow.python import ipu

images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32)[:1536], labels[:1536].astype(np.int32)


# %%
def trained(ipus, batch_size, accumulate=1):
    """A model after three epochs, in the same order of samples, with `ipus` replicas."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        rate = 0.5 / (ipus * accumulate)  # gradients, means over 16 digits, are summed
        model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"], steps_per_execution=8)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulate)
        model.history = model.fit(images, labels, batch_size=batch_size, epochs=3, shuffle=False, verbose=0)
    return model


# %% [markdown]
# We train with one batch of 64, with four replicas of 16 each, with four micro-batches of 16, and with two replicas and
# two micro-batches of 16. `batch_size` is that of one replica and one micro-batch. Gradients are summed, as programs
# for the IPU expect, so we divide the learning rate by their number. `gradient_accumulation_reduction_method="mean"`
# would divide the gradients of micro-batches.

# %%
models = {
    "one batch of 64": trained(1, 64),
    "4 replicas": trained(4, 16),
    "4 micro-batches": trained(1, 16, accumulate=4),
    "2 replicas, 2 micro-batches": trained(2, 16, accumulate=2),
}
for name, model in models.items():
    history = model.history.history
    print(
        f"{name:28} {int(model.optimizer.iterations)} updates, loss {history['loss'][-1]:.6f}, "
        f"accuracy {history['accuracy'][-1]:.2%}"
    )

# %% [markdown]
# They make the same updates. Only the order in which numbers are added differs:

# %%
expected = models["one batch of 64"].get_weights()
for name, model in models.items():
    largest = max(float(abs(a - b).max()) for a, b in zip(expected, model.get_weights(), strict=True))
    print(f"{name:28} {largest:.1e}")

# %% [markdown]
# Here replicas share the cores of this machine, so they are not faster. Chips work at the same time, and each has its
# own copy of the weights. What would a step of this model cost a chip?

# %%
from keras_ext.chip import chip_scaling, chip_summary

chip_summary(models["4 replicas"])

# %% [markdown]
# How far would more replicas take us? The model is small, so its gradients soon take most of a step:

# %%
chip_scaling(models["4 replicas"])

# %% [markdown]
# Use accumulation for a large batch whose activations do not fit into a chip's memory, and replicas for more chips.
# [Replicas](../replicas.md) in your own functions use `cross_replica_ops`. In [several processes](processes.ipynb)
# replicas run on more than one machine.
