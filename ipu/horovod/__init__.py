"""Horovod's names for several processes, as `tensorflow.python.ipu.horovod` has them; they communicate by MPI here.

Processes are started by `python -m ipu.run`, or any launcher of MPI.
"""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from ipu._internal.processes import active

HOMES = dict.fromkeys(("allgather", "allreduce", "broadcast"), "ipu.distributed.host_collective_ops")
NAMES = ("init", "shutdown", "is_initialized", "size", "rank", "local_size", "local_rank")
STRATEGIES = ("ipu_horovod_strategy", "ipu_multi_replica_strategy", "popdist_strategy")
Average, Sum, Adasum, Min, Max, Product = "average", "sum", "adasum", "min", "max", "product"
__all__ = [*HOMES, *NAMES, "Average", "Sum", "Adasum", "Min", "Max", "Product"]  # noqa: PLE0604
__getattr__, __dir__ = public_names(__name__, (*__all__, *STRATEGIES), HOMES)


def init() -> None:
    """Initialises communication between the processes of a run; a process without a launcher is alone.

    Raises ConfigurationError without mpi4py under a launcher, ProcessError for processes with different versions.
    """
    active.initialise()


def shutdown() -> None:
    """Ends the communication, once all processes call it."""
    active.shut_down()


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return active.active() is not None


def size() -> int:
    """The number of processes. Raises ValueError before `init`."""
    return active.required().size


def rank() -> int:
    """The number of this process, from 0 on. Raises ValueError before `init`."""
    return active.required().rank


def local_size() -> int:
    """The number of processes on this machine. Raises ValueError before `init`."""
    return active.required().local_size


def local_rank() -> int:
    """The number of this process among those on its machine. Raises ValueError before `init`."""
    return active.required().local_rank
