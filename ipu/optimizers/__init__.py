"""Optimizer classes for the IPU: the public names of `tensorflow.python.ipu.optimizers` (Python API, 18.15)."""

from ipu._internal.names.namespace import public_names
from ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from ipu.optimizers.ipu_optimizer import IpuOptimizer
from ipu.optimizers.map_gradient_optimizer import MapGradientOptimizer
from ipu.optimizers.sharded_optimizer import ShardedOptimizer

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "IpuOptimizer",
    "MapGradientOptimizer",
    "ShardedOptimizer",
]
_MODULES = (
    "cross_replica_optimizer",
    "gradient_accumulation_optimizer",
    "map_gradient_optimizer",
    "sharded_optimizer",
)

# Programs of some releases find the reduction method here.
_HOMES = {"GradientAccumulationReductionMethod": "ipu.gradient_accumulation"}
__getattr__, __dir__ = public_names(__name__, (*__all__, *_MODULES), _HOMES)
