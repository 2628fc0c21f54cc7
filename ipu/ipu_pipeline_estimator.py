"""Pipelined estimators: the public names of `tensorflow.python.ipu.ipu_pipeline_estimator` (Python API, 18.12.2)."""

from ipu._internal.estimators.pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipu._internal.names.namespace import public_names

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]
__getattr__, __dir__ = public_names(__name__, __all__)
