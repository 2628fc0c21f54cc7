"""`keras.ipu.extensions.sequential_extensions`: the extension of sequential models."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from keras_ext.extensions.model_extensions import ModelExtension
from keras_ext.pipelining.assignments import (
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)

__all__ = [
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]
__getattr__, __dir__ = public_names(__name__, __all__)


class SequentialExtension(ModelExtension):
    """The methods of `Sequential` models created inside an IPUStrategy, which are its instances (Keras API, 25.1)."""
