"""Documented names that do not exist here, and their replacements; a module's own entry is for the rest of it."""

_REPLICAS = "IPUConfig.auto_select_ipus for replicas in one process, with IPUStrategy"

NOT_HERE = {
    "ipu.horovod": _REPLICAS,
    "ipu.horovod.allgather": "ipu.all_to_all_op.all_gather",
    "ipu.horovod.allreduce": "ipu.cross_replica_ops.cross_replica_sum",
    "ipu.horovod.broadcast": "variables as they are: all replicas of IPUStrategy have the same",
    "ipu.ipu_multi_worker_strategy": _REPLICAS,
}
