"""An alternative path of `ipu.optimizers.cross_replica_optimizer` (Python API, table 18.1)."""

from ipu.optimizers.cross_replica_optimizer import (
    CrossReplicaOptimizer,
)

__all__ = [
    "CrossReplicaOptimizer",
]
