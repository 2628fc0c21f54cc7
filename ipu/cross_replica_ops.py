"""The documented path of `ipu.ops.cross_replica_ops`."""

from ipu._internal.names.namespace import public_names
from ipu.ops.cross_replica_ops import assume_equal_across_replicas, cross_replica_mean, cross_replica_sum

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]

__getattr__, __dir__ = public_names(__name__, __all__)
