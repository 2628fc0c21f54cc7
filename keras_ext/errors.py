"""Errors that only Keras programs can meet."""

from engine.errors import ConfigurationError, UnsupportedOperation


class EagerExecutionError(ConfigurationError, RuntimeError):
    """A model of the strategy was told to run eagerly, which the engine cannot."""


class RaggedInput(UnsupportedOperation, ValueError):
    """Rows of different lengths, which neither an IPU nor Keras' own layers take."""


class IncompleteConfig(ConfigurationError, RuntimeError):
    """A model's class leaves options out of its config that it would need to come back as it was."""


class RemovedName(ConfigurationError, RuntimeError):
    """Something of an old release that has been replaced; the message says by what."""
