"""Tapes and contexts that capture gradients: the public name of `tensorflow.python.ipu.eager.backprop`."""

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.gradient_capture import GradientCaptureContext, GradientCaptureTape

__all__ = ["GradientCaptureContext", "GradientCaptureTape"]
__getattr__, __dir__ = public_names(__name__, __all__)
