"""How gradients are accumulated: the public name of `tensorflow.python.ipu.gradient_accumulation`."""

from __future__ import annotations

from enum import Enum

from ipu._internal.names.namespace import public_names

__all__ = ["GradientAccumulationReductionMethod"]


class GradientAccumulationReductionMethod(Enum):
    """What becomes of the gradients of the batches between two updates.

    SUM adds them. MEAN adds each divided by the number of batches. RUNNING_MEAN keeps, after each batch, the mean of
    those so far, which stays in the range of the gradients themselves.
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2


__getattr__, __dir__ = public_names(__name__, __all__)
