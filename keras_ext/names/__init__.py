"""The documented names of `keras.ipu` and `tf_keras.ipu`: a package for each Keras, as their layers differ in class."""

from __future__ import annotations

STAGE_NAMES = (
    "FunctionalLayerPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "SequentialLayerPipelineStageAssignment",
)
"""Names of `extensions` that are also exported from the package itself."""

REMOVED_MODELS = (
    "IPUModel",
    "IPUSequential",
    "Model",
    "PipelineModel",
    "PipelinedModel",
    "PipelineSequential",
    "Sequential",
)
"""Classes that raise an error when they are used, in place of models of old releases."""

LISTED = ("extensions", "layers", "losses", "optimizers", *STAGE_NAMES)
HOMES = {**dict.fromkeys(STAGE_NAMES, "keras_ext.extensions"), **dict.fromkeys(REMOVED_MODELS, "keras_ext.ported")}
