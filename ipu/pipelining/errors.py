"""Errors of pipelines in the classes that programs for TensorFlow catch."""

from engine.errors import ConfigurationError


class PipelineTypeError(ConfigurationError, TypeError):
    """An argument of another type than a pipeline takes."""


class PipelineRuntimeError(ConfigurationError, RuntimeError):
    """A pipeline that has nothing to do, or is used for what it cannot do."""
