"""Errors that only Keras programs can meet."""

from engine.errors import ConfigurationError


class EagerExecutionError(ConfigurationError, RuntimeError):
    """A model of the strategy was told to run eagerly, which the engine cannot."""
