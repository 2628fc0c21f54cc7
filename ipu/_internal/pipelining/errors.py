"""Errors of pipelines in the classes that programs for TensorFlow catch."""

import tensorflow as tf

from engine.errors import AccumulationStepError, ConfigurationError


class PipelineTypeError(ConfigurationError, TypeError):
    """An argument of another type than a pipeline takes."""


class PipelineRuntimeError(ConfigurationError, RuntimeError):
    """A pipeline that has nothing to do, or is used for what it cannot do."""


class PipelineCountError(AccumulationStepError, tf.errors.FailedPreconditionError):
    """A number of micro-batches with which a schedule has no whole periods."""

    def __init__(self, message: str) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)
