"""An alternative path of `ipu.optimizers.map_gradient_optimizer` (Python API, table 18.1)."""

from ipu._internal.names.namespace import public_names
from ipu.optimizers.map_gradient_optimizer import (
    MapGradientOptimizer,
)

__all__ = [
    "MapGradientOptimizer",
]

__getattr__, __dir__ = public_names(__name__, __all__)
