"""An alternative path of `ipu.optimizers.cross_replica_optimizer` (Python API, table 18.1)."""

from ipu._internal.names.namespace import public_names
from ipu.optimizers.cross_replica_optimizer import (
    CrossReplicaOptimizer,
)

__all__ = [
    "CrossReplicaOptimizer",
]

__getattr__, __dir__ = public_names(__name__, __all__)
