# %% [markdown]
# # Several processes
#
# PopDist programs run in several processes, on one machine or more. Each process reads its part of the data, and
# gradients are summed over all. You need MPI, which `pip install 'software-ipu[mpi]'` installs.

# %%
import json
import subprocess
import sys
from pathlib import Path

# %% [markdown]
# A program asks for its part of the run. The strategy spans all processes, and samples are divided among them by their
# index.

# %%
program = """
import json, sys
import keras, popdist, popdist.tensorflow
import numpy as np
from sklearn.datasets import load_digits
from tensorflow.python import ipu

popdist.init()
config = ipu.config.IPUConfig()
popdist.tensorflow.set_ipu_config(config)
config.configure_ipu_system()
strategy = ipu.distributed.popdist_strategy.PopDistStrategy()
count, index = popdist.getNumInstances(), popdist.getInstanceIndex()

images, labels = load_digits(return_X_y=True)
batches = (images[:1536] / 16).astype(np.float32).reshape(-1, 16, 64), labels[:1536].reshape(-1, 16)
replicas = popdist.getNumLocalReplicas()
mine = np.arange(96).reshape(-1, count, replicas)[:, index].ravel()
x, y = batches[0][mine].reshape(-1, 64), batches[1][mine].reshape(-1)

keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"], steps_per_execution=8)
    history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0).history
if index == 0:
    result = {"loss": history["loss"], "accuracy": history["accuracy"][-1], "samples": len(x)}
    json.dump(result, open(sys.argv[1], "w"))
    np.savez("weights" + sys.argv[1] + ".npz", *model.get_weights())
"""
_ = Path("train.py").write_text(program)


# %% [markdown]
# The launcher starts the processes, binds each to its cores, and ends all if one fails.


# %%
def run(processes, replicas):
    name = f"{processes}x{replicas}"
    options = ["--processes", str(processes), "--replicas", str(replicas)]
    done = subprocess.run(
        [sys.executable, "-m", "ipu.run", *options, "--", "train.py", name], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(Path(name).read_text())


# %% [markdown]
# Four replicas in one process, and two in each of two processes, get the same batches:

# %%
results = {(processes, replicas): run(processes, replicas) for processes, replicas in ((1, 4), (2, 2))}
for (processes, replicas), result in results.items():
    print(
        f"{processes} processes of {replicas} replicas, {result['samples']} samples each: "
        f"losses {[round(loss, 5) for loss in result['loss']]}, accuracy {result['accuracy']:.2%}"
    )

# %% [markdown]
# They train the same model, except for the order of floating-point sums:

# %%
import numpy as np

one, two = (np.load(f"weights{name}.npz") for name in ("1x4", "2x2"))
print(f"largest difference of a weight: {max(abs(one[name] - two[name]).max() for name in one.files):.1e}")

# %% [markdown]
# If processes diverge, by another number of steps or another batch size, an error at once names the call of each. If a
# process is killed, the others end.
#
# [The page on processes](../processes.md) has several machines, Slurm, workers of `TF_CONFIG` without MPI, and
# Horovod's names.
