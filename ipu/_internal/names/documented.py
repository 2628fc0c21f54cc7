"""Documented names that do not exist here, and their replacements; a module's own entry is for the rest of it."""

_REPLICAS = "IPUConfig.auto_select_ipus for replicas in one process, with IPUStrategy"

NOT_HERE = {
    "ipu.ipu_multi_worker_strategy": _REPLICAS,
}
