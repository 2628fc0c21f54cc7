"""Errors of pipelined models; programs for IPUs catch the second base of each class."""

from engine.errors import ConfigurationError


class StageScopeError(ConfigurationError, RuntimeError):
    """A PipelineStage in an illegal position: outside an IPUStrategy, or inside another one."""


class StageAssignmentError(ConfigurationError, RuntimeError):
    """A model whose stages cannot be read or executed."""
