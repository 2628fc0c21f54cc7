"""Run on two hosts: prints where each process is, and a sum over all processes."""

import socket

import numpy as np

from ipu._internal.processes.active import initialise

transport = initialise()
local = f"{transport.local_rank} of {transport.local_size}, {transport.rank} of {transport.size}"
print(f"{socket.gethostname()}: {local}; {transport.all_reduce(np.float64(transport.rank))}", flush=True)
