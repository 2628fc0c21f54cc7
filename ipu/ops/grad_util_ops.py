"""Gradients inside of a model: the public name of `tensorflow.python.ipu.ops.grad_util_ops`."""

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.gradient_capture import capture_upstream_gradients

__all__ = ["capture_upstream_gradients"]
__getattr__, __dir__ = public_names(__name__, __all__)
