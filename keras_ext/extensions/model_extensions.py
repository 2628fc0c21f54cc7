"""`keras.ipu.extensions.model_extensions`: the extension of models that are neither functional nor sequential."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from keras_ext.accumulation_options import AccumulationOptions
from keras_ext.callback_options import CallbackOptions
from keras_ext.pipelining.assigning import StageAssignments
from keras_ext.pipelining.assignments import ModelLayerPipelineStageAssignment, ModelNestedModelPipelineStageAssignment
from keras_ext.pipelining.options import PipeliningOptions
from keras_ext.pipelining.planning import PipelinePlanning
from keras_ext.pipelining.schedules import PipelineSchedules
from keras_ext.queue_options import QueueOptions
from keras_ext.serving import ServingExport

__all__ = ["ModelExtension", "ModelLayerPipelineStageAssignment", "ModelNestedModelPipelineStageAssignment"]
__getattr__, __dir__ = public_names(__name__, __all__)


class ModelExtension(
    AccumulationOptions,
    CallbackOptions,
    PipeliningOptions,
    PipelinePlanning,
    PipelineSchedules,
    QueueOptions,
    ServingExport,
    StageAssignments,
):
    """The methods of models created inside an IPUStrategy, all of which are instances (Keras API, section 25.1).

    Each base class is one group of options.
    """


KerasExtensionBase = ModelExtension
"""The name of earlier releases, of which each extension is a subclass."""
