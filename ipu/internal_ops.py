"""The documented path of `ipu.ops.internal_ops`."""

from ipu.ops.internal_ops import get_current_iteration_counter, print_tensor

__all__ = ["get_current_iteration_counter", "print_tensor"]
