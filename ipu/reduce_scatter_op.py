"""The documented path of `ipu.ops.reduce_scatter_op`."""

from ipu.ops.reduce_scatter_op import reduce_scatter

__all__ = ["reduce_scatter"]
