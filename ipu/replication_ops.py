"""The documented path of `ipu.ops.replication_ops`."""

from ipu._internal.names.namespace import public_names
from ipu.ops.replication_ops import replication_index

__all__ = ["replication_index"]

__getattr__, __dir__ = public_names(__name__, __all__)
