"""The package of `keras.ipu`, `tf_keras.ipu` and `tensorflow.python.ipu.keras`; modules are loaded when used."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names

STAGE_NAMES = (
    "FunctionalLayerPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "SequentialLayerPipelineStageAssignment",
)
"""Names of `extensions` that are also exported here."""

REMOVED_MODELS = ("IPUModel", "IPUSequential", "Model", "PipelineModel", "PipelineSequential", "Sequential")
"""Classes that raise an error when they are used, in place of models of old releases."""

__getattr__, __dir__ = public_names(
    __name__,
    ("extensions", *STAGE_NAMES),
    {**dict.fromkeys(STAGE_NAMES, "keras_ext.extensions"), **dict.fromkeys(REMOVED_MODELS, "keras_ext.ported")},
)
