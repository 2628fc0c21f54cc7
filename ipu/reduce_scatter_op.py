"""The documented path of `ipu.ops.reduce_scatter_op`."""

from ipu._internal.names.namespace import public_names
from ipu.ops.reduce_scatter_op import reduce_scatter

__all__ = ["reduce_scatter"]

__getattr__, __dir__ = public_names(__name__, __all__)
