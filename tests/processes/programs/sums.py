"""Prints a digest that is the same in every run: of sums over all processes, which begin each sum at random times, and
of the weights of a model trained with two replicas in each process."""

from __future__ import annotations

import hashlib
import os
import time

import numpy as np

from ipu._internal.processes.active import activate, initialise
from ipu._internal.processes.transport import Transport


def digest(transport: Transport) -> str:
    """A digest of the sums of random numbers."""
    random, delays, made = np.random.default_rng(transport.rank), np.random.default_rng(), hashlib.sha256()
    for size in (1, 1000, 100_003):
        for dtype in (np.float32, np.float16):
            array = random.normal(size=size).astype(dtype)
            time.sleep(delays.uniform(0, 0.01))
            made.update(transport.all_reduce(array).tobytes())
            transport.all_reduce_in_place(array)
            made.update(array.tobytes())
    return made.hexdigest()


def train() -> str:
    """A digest of a model's weights after two epochs; its gradients are summed in several buckets."""
    import keras
    import tensorflow as tf

    from ipu.config import IPUConfig
    from ipu.distributed.popdist_strategy import PopDistStrategy
    from ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver
    strategy = IPUMultiWorkerStrategy(resolver()) if "TF_CONFIG" in os.environ else PopDistStrategy()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(strategy.transport.rank).normal(size=(32, 6)).astype(np.float32)
    with strategy.scope():
        hidden = [keras.layers.Dense(16, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((6,)), *hidden])
        model.compile("adam", "mse", steps_per_execution=2)
        model.fit(x, x[:, :3], batch_size=4, epochs=2, verbose=0)
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in model.get_weights())).hexdigest()


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        import tensorflow as tf

        from ipu._internal.processes.collective_ops import transport_of

        activate(transport_of(tf.distribute.cluster_resolver.TFConfigClusterResolver()))
    print("digest", digest(initialise()), train(), flush=True)
