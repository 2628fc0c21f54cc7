"""`keras.ipu.extensions.functional_extensions`: the extension of functional models."""

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
__getattr__, __dir__ = public_names(__name__, __all__)


class FunctionalExtension(ModelExtension):
    """The methods of functional models created inside an IPUStrategy, which are its instances (Keras API, 25.1)."""
