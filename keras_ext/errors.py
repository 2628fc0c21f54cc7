"""Errors that only Keras programs raise."""

from engine.errors import ConfigurationError, UnsupportedOperation


class EagerExecutionError(ConfigurationError, RuntimeError):
    """A model of the strategy with run_eagerly=True, which the engine does not support."""


class UnsupportedData(UnsupportedOperation):
    """Data that the engine cannot read, whatever the model is."""


class RaggedInput(UnsupportedData, ValueError):
    """Rows of different lengths, which neither an IPU nor Keras' own layers accept."""


class IncompleteConfig(ConfigurationError, RuntimeError):
    """A model's class leaves options out of its config that are needed to restore the model."""


class RemovedName(ConfigurationError, RuntimeError):
    """A name of an old release that has been replaced; the message names the replacement."""
