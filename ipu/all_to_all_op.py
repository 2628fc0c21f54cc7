"""The documented path of `ipu.ops.all_to_all_op`."""

from ipu.ops.all_to_all_op import all_gather, all_to_all

__all__ = ["all_gather", "all_to_all"]
