"""An alternative path of `ipu.optimizers.sharded_optimizer` (Python API, table 18.1)."""

from ipu._internal.names.namespace import public_names
from ipu.optimizers.sharded_optimizer import (
    ShardedOptimizer,
)

__all__ = [
    "ShardedOptimizer",
]

__getattr__, __dir__ = public_names(__name__, __all__)
