"""An alternative path of `ipu.optimizers.sharded_optimizer` (Python API, table 18.1)."""

from ipu.optimizers.sharded_optimizer import (
    ShardedOptimizer,
)

__all__ = [
    "ShardedOptimizer",
]
