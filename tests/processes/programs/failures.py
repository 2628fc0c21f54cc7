"""Run in two processes: process 1 fails as the argument says while process 0 waits for it."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
from sums import digest

from engine.errors import ProcessError
from ipu._internal.processes.active import activate, initialise
from ipu._internal.processes.time_limits import SILENCE, time_limit

action = sys.argv[1]
is_late = os.environ.get("PMIX_RANK") == "1"


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def be_slow() -> None:
    end = time.monotonic() + time_limit(SILENCE) * 0.8
    while time.monotonic() < end:
        pass


if action == "never starts":
    if is_late:
        sys.exit(0)
    time.sleep(2)  # a process that ends after another one has started MPI is an error at once
if "TF_CONFIG" in os.environ:
    import tensorflow as tf

    from ipu._internal.processes.collective_ops import transport_of

    activate(transport_of(tf.distribute.cluster_resolver.TFConfigClusterResolver()))
transport = initialise()
is_late = transport.rank == 1
pids = transport.all_gather(np.array(os.getpid()))
if action == "is slow, then stopped":
    if is_late:
        be_slow()
    transport.barrier("after the slow one")
    print("slow processes are no error", flush=True)
if action == "is killed":
    assert digest(transport) == digest(transport)
    print("sums have the same bits", flush=True)
    transport.barrier()
if action == "is killed" and is_late:
    os.kill(os.getpid(), signal.SIGKILL)
if action == "waits" or is_late:
    print("process", os.getpid(), flush=True)
    time.sleep(600) if action == "waits" else stop()
try:
    transport.all_reduce(np.ones(3, np.float32), name="gradients")
except ProcessError:
    if "TF_CONFIG" in os.environ:  # no launcher ends the process that is stopped
        os.kill(int(pids[1]), signal.SIGKILL)
    raise
