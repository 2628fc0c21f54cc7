"""An alternative path of `ipu.optimizers.map_gradient_optimizer` (Python API, table 18.1)."""

from ipu.optimizers.map_gradient_optimizer import (
    MapGradientOptimizer,
)

__all__ = [
    "MapGradientOptimizer",
]
