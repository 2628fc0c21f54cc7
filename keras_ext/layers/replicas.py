"""Layers about replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.compiler.collectives import assume_equal
from ipu._internal.compiler.variables import tracing
from keras_ext.layers.definition import Definition
from keras_ext.types import Nest


class AssumeEqualAcrossReplicas(Definition):
    """States that its inputs are equal on all replicas, so that control flow may depend on them; returns them.

    All replicas continue with the values of replica 0.

    Args:
        inplace: has no effect: no copy is made either way.
        **kwargs: arguments of every Keras layer.
    """

    settings = ("inplace",)

    def __init__(self, inplace: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inplace = inplace

    def call(self, inputs: Nest) -> Nest:
        """Declares tensors equal on all replicas; their gradients pass unchanged.

        Args:
            inputs: a tensor, or a structure of tensors, of any shapes and dtypes.

        Returns:
            The same structure, with the values of replica 0.
        """
        return tf.nest.map_structure(assume_equal, inputs) if tracing() else inputs
