"""Layers about recomputation."""

from __future__ import annotations

from ipu.ops.pipelining_ops import recomputation_checkpoint
from keras_ext.layers.definition import Definition
from keras_ext.types import Nest


class RecomputationCheckpoint(Definition):
    """Keeps its inputs from being recomputed in the backward pass; returns them.

    See `ipu.pipelining_ops.recomputation_checkpoint`: it has an effect with IPUConfig.allow_recompute, in steps without
    a pipeline and in a pipeline with RecomputationMode.RecomputeAndBackpropagateInterleaved.

    Args:
        **kwargs: arguments of every Keras layer.
    """

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Nest) -> Nest:
        """Marks tensors as kept.

        Args:
            inputs: a tensor, or a structure of tensors, of any shapes and dtypes.

        Returns:
            The same structure, unchanged.
        """
        return recomputation_checkpoint(inputs)
