"""The names of Graphcore's `popdist` that programs call: this process' part of a run by `python -m ipu.run`."""

from __future__ import annotations

from ipu._internal.config.validation import id_of_ipus
from ipu._internal.names.namespace import public_names
from ipu._internal.processes.active import LAUNCHERS, initialise, shut_down
from ipu._internal.processes.settings import ipus_per_replica as set_ipus_per_replica
from ipu._internal.processes.settings import local_replicas, total_replicas

__all__ = [
    "finalizeSession",
    "getDeviceId",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "synchronize",
]
__getattr__, __dir__ = public_names(__name__, (*__all__, "tensorflow"))


def isPopdistEnvSet() -> bool:  # noqa: N802
    """Whether a launcher has started this process."""
    import os

    return any(name in os.environ for name in LAUNCHERS)


def init() -> None:
    """Initialises communication between the processes. Raises as `ipu.horovod.init`."""
    initialise()


def finalizeSession() -> None:  # noqa: N802
    """Ends the communication, once all processes call it."""
    shut_down()


def synchronize() -> None:
    """Returns once all processes have called it."""
    initialise().barrier()


def getNumInstances() -> int:  # noqa: N802
    """The number of processes."""
    return initialise().size


def getInstanceIndex() -> int:  # noqa: N802
    """The number of this process, from 0 on."""
    return initialise().rank


def getNumIpusPerReplica() -> int:  # noqa: N802
    """The number of IPUs of each replica, 1 unless `python -m ipu.run --ipus-per-replica` has set it."""
    return set_ipus_per_replica()


def getDeviceId(ipus_per_replica: int | None = None) -> int:  # noqa: N802
    """The Id of a device of IPUs for the local replicas, for IPUConfig.select_ipus: each process has its own.

    A replica has `ipus_per_replica` IPUs, by default the number of getNumIpusPerReplica.
    """
    return id_of_ipus(local_replicas() * (ipus_per_replica or getNumIpusPerReplica()))


def getNumLocalReplicas() -> int:  # noqa: N802
    """The number of replicas of this process."""
    return local_replicas()


def getNumTotalReplicas() -> int:  # noqa: N802
    """The number of replicas of all processes."""
    return total_replicas()


def getReplicaIndexOffset() -> int:  # noqa: N802
    """The number of this process' first replica among those of all."""
    return initialise().rank * local_replicas()
