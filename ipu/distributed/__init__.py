"""Several processes that each run replicas of one program: collectives on the host, and the strategy."""

from ipu._internal.names.namespace import public_names

HOMES = dict.fromkeys(("allgather", "allreduce", "broadcast"), "ipu.distributed.host_collective_ops")
__getattr__, __dir__ = public_names(__name__, (*HOMES, "host_collective_ops", "popdist_strategy"), HOMES)
