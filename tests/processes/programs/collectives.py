"""Run in two processes, of MPI or of TF_CONFIG: collectives against their definitions, then calls that differ,
and a process that is killed if the argument is "both"."""

from __future__ import annotations

import os
import signal
import sys
import time

import ml_dtypes
import numpy as np

from engine.errors import ProcessError
from ipu._internal.processes.active import activate, initialise
from ipu._internal.processes.time_limits import COLLECTIVE, time_limit

if "TF_CONFIG" in os.environ:
    import tensorflow as tf

    from ipu._internal.processes.collective_ops import transport_of

    activate(transport_of(tf.distribute.cluster_resolver.TFConfigClusterResolver()))
transport = initialise()
rank = transport.rank
assert transport.size == 2 and transport.local_size == 2 and transport.local_rank == rank
random = np.random.default_rng(0)
for dtype in (np.float32, np.float64, np.int32, np.float16, ml_dtypes.bfloat16):
    both = random.integers(-4, 4, (2, 3, 5)).astype(dtype)
    own, wide = both[rank], both.astype(np.float64)
    for operation, fold in (("sum", np.sum), ("min", np.min), ("max", np.max), ("product", np.prod)):
        result = transport.all_reduce(own, operation)
        assert result.dtype == own.dtype and np.array_equal(result, fold(wide, axis=0)), (dtype, operation)
    assert np.array_equal(own, both[rank])
    assert np.array_equal(transport.all_gather(own), both)
    assert np.array_equal(transport.broadcast(own, 1), both[1])
    assert np.array_equal(transport.all_gather_rows(own[: rank + 1]), np.concatenate([both[0, :1], both[1, :2]]))
    flat = both.reshape(2, -1)[:, :14]
    halves = wide.reshape(2, -1)[:, :14].sum(0).reshape(2, 7)
    assert np.array_equal(transport.reduce_scatter(flat[rank]), halves[rank])
array = np.ones(3, np.float32)
transport.all_reduce_in_place(array)
assert array.tolist() == [2, 2, 2] and transport.bytes > 0 and transport.seconds > 0
assert transport.all_reduce(np.float32(1.5)) == 3
print("collectives agree", flush=True)
for size in (3 + rank, 3):
    try:
        transport.all_reduce(np.ones(size, np.float32), name="gradients")
    except ProcessError as error:
        print(f"ProcessError: {error}", flush=True)
if sys.argv[1] == "all":
    transport._failed = False  # type: ignore[attr-defined]

    def interrupt() -> bool:
        raise KeyboardInterrupt

    try:
        transport._wait(interrupt)  # type: ignore[attr-defined]
    except KeyboardInterrupt:
        try:  # the other processes would take this call for their next one
            transport.barrier()
        except ProcessError as error:
            print(f"after an interrupt: {error}", flush=True)
if sys.argv[1] == "both":
    transport._failed = False  # type: ignore[attr-defined]
    transport.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        transport.all_reduce(np.ones(3))
    except ProcessError as error:
        at_once = time.monotonic() - begin < time_limit(COLLECTIVE) / 2
        print(f"killed, which is seen at once: {at_once}: {error}", flush=True)
