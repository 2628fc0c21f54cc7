"""The documented path of `ipu.ops.internal_ops`."""

from ipu._internal.names.namespace import public_names
from ipu.ops.internal_ops import get_current_iteration_counter, print_tensor

__all__ = ["get_current_iteration_counter", "print_tensor"]

__getattr__, __dir__ = public_names(__name__, __all__)
