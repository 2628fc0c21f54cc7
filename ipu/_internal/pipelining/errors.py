"""Errors of pipelines, also of the classes that TensorFlow programs catch."""

import tensorflow as tf

from engine.errors import AccumulationStepError, ConfigurationError


class PipelineTypeError(ConfigurationError, TypeError):
    """An argument of another type than a pipeline takes."""


class PipelineRuntimeError(ConfigurationError, RuntimeError):
    """A pipeline with nothing to do, or an unsupported use of one."""


class PipelineCountError(AccumulationStepError, tf.errors.FailedPreconditionError):
    """A number of micro-batches that is no whole number of a schedule's periods."""

    def __init__(self, message: str) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)
