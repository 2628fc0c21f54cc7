"""The documented names of `keras.ipu.extensions`: the methods of each kind of model, and pipeline stages."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from keras_ext.extensions.functional_extensions import (
    FunctionalExtension,
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
)
from keras_ext.extensions.model_extensions import (
    ModelExtension,
    ModelLayerPipelineStageAssignment,
    ModelNestedModelPipelineStageAssignment,
)
from keras_ext.extensions.sequential_extensions import (
    SequentialExtension,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from keras_ext.pipelining.assignments import NestedModelPipelineStageAssignment
from keras_ext.pipelining.stage import PipelineStage

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "ModelNestedModelPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]

__getattr__, __dir__ = public_names(
    __name__,
    (*__all__, "functional_extensions", "model_extensions", "sequential_extensions"),
    {"KerasExtensionBase": "keras_ext.extensions.model_extensions"},
)
