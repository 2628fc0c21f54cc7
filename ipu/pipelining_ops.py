"""The documented path of `ipu.ops.pipelining_ops`."""

from ipu._internal.names.namespace import public_names
from ipu.ops.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    get_pipeline_schedule,
    pipeline,
    recomputation_checkpoint,
)

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "get_pipeline_schedule",
    "pipeline",
    "recomputation_checkpoint",
]

__getattr__, __dir__ = public_names(__name__, __all__)
