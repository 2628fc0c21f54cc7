"""The documented path of `ipu.ops.replication_ops`."""

from ipu.ops.replication_ops import replication_index

__all__ = ["replication_index"]
