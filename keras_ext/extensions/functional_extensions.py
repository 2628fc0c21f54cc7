"""`keras.ipu.extensions.functional_extensions`: what functional models get."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from keras_ext.extensions.model_extensions import ModelExtension
from keras_ext.pipelining.assignments import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
)

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
]


class FunctionalExtension(ModelExtension):
    """The methods of a functional model created inside an IPUStrategy, its instance (Keras API, 25.1)."""


__getattr__, __dir__ = public_names(__name__, __all__)
