"""An alternative path of `ipu.optimizers.gradient_accumulation_optimizer` (Python API, table 18.1)."""

from ipu._internal.names.namespace import public_names
from ipu.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
]

__getattr__, __dir__ = public_names(__name__, __all__)
