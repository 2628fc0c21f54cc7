"""The documented path of `ipu.ops.all_to_all_op`."""

from ipu._internal.names.namespace import public_names
from ipu.ops.all_to_all_op import all_gather, all_to_all

__all__ = ["all_gather", "all_to_all"]

__getattr__, __dir__ = public_names(__name__, __all__)
