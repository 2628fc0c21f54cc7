"""Estimators: the public names of `tensorflow.python.ipu.ipu_estimator` (Python API, 18.12.1)."""

from ipu._internal.estimators.ipu_estimator import IPUEstimator
from ipu._internal.estimators.specs import IPUEstimatorSpec
from ipu._internal.names.namespace import public_names

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]
__getattr__, __dir__ = public_names(__name__, __all__)
