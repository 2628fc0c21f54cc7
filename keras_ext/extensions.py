"""The documented names of `keras.ipu.extensions`: which methods each kind of model gets, and pipeline stages."""

from __future__ import annotations

from keras_ext.accumulation import AccumulationOptions
from keras_ext.callback_options import CallbackOptions
from keras_ext.pipelining.assigning import StageAssignments
from keras_ext.pipelining.assignments import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    ModelNestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from keras_ext.pipelining.options import PipeliningOptions
from keras_ext.pipelining.planning import PipelinePlanning
from keras_ext.pipelining.schedules import PipelineSchedules
from keras_ext.pipelining.stage import PipelineStage
from keras_ext.queue_options import QueueOptions
from keras_ext.serving import ServingExport

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "ModelNestedModelPipelineStageAssignment",
    "PipelineStage",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]


class _EveryModel(
    *(AccumulationOptions, CallbackOptions, PipeliningOptions, PipelinePlanning, PipelineSchedules),
    *(QueueOptions, ServingExport, StageAssignments),
):
    """What all kinds of models get; a further group of options is one more base class."""


class SequentialExtension(_EveryModel):
    """The methods of a `Sequential` model created inside an IPUStrategy."""


class FunctionalExtension(_EveryModel):
    """The methods of a functional model created inside an IPUStrategy."""


class ModelExtension(_EveryModel):
    """The methods of an instance of a subclass of `Model` created inside an IPUStrategy."""
