"""Prints a digest of sums over all processes, which come to each at random times: the same in each run."""

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


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        import tensorflow as tf

        from ipu._internal.processes.collective_ops import transport_of

        activate(transport_of(tf.distribute.cluster_resolver.TFConfigClusterResolver()))
    print("digest", digest(initialise()), flush=True)
