"""Reduction of accumulated gradients: the public name of `tensorflow.python.ipu.gradient_accumulation`."""

from ipu._internal.names.namespace import public_names
from ipu._internal.pipelining.options import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
__getattr__, __dir__ = public_names(__name__, __all__)
