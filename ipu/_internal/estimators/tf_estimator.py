"""The names of `tf.estimator`, which TensorFlow has no longer, that programs with estimators use."""

import sys
from typing import Any

import tensorflow as tf

from ipu._internal.estimators import export
from ipu._internal.estimators.estimator import Estimator
from ipu._internal.estimators.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from ipu._internal.estimators.run_config import RunConfig
from ipu._internal.estimators.specs import EstimatorSpec, ModeKeys
from ipu._internal.estimators.train_and_evaluate import EvalSpec, TrainSpec, train_and_evaluate
from ipu._internal.estimators.warm_start import WarmStartSettings
from ipu._internal.names.namespace import public_names

_train: Any = tf.compat.v1.train
CheckpointSaverHook = _train.CheckpointSaverHook
CheckpointSaverListener = _train.CheckpointSaverListener
FeedFnHook = _train.FeedFnHook
FinalOpsHook = _train.FinalOpsHook
GlobalStepWaiterHook = _train.GlobalStepWaiterHook
LoggingTensorHook = _train.LoggingTensorHook
NanLossDuringTrainingError = _train.NanLossDuringTrainingError
NanTensorHook = _train.NanTensorHook
ProfilerHook = _train.ProfilerHook
SecondOrStepTimer = _train.SecondOrStepTimer
SessionRunArgs = _train.SessionRunArgs
SessionRunContext = _train.SessionRunContext
SessionRunHook = _train.SessionRunHook
SessionRunValues = _train.SessionRunValues
StepCounterHook = _train.StepCounterHook
StopAtStepHook = _train.StopAtStepHook
SummarySaverHook = _train.SummarySaverHook
VocabInfo = _train.VocabInfo

__all__ = [
    "BestExporter",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FeedFnHook",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LatestExporter",
    "LoggingTensorHook",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "export",
    "train_and_evaluate",
]
LOSS_METRIC_KEY, AVERAGE_LOSS_METRIC_KEY = "loss", "average_loss"
"""The names of losses among metrics, which programs import from `model_fn`."""
__path__: list[str] = []
"""Makes this module a package, `tensorflow.python.estimator`, from which programs import the modules named below."""
estimator = estimator_lib = exporter = mode_keys = model_fn = run_config = training = sys.modules[__name__]
__getattr__, __dir__ = public_names(__name__, __all__)
