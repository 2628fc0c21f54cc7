"""What can be wrong with a pipelined model; the second base of each class is what programs for IPUs catch."""

from engine.errors import ConfigurationError


class StageScopeError(ConfigurationError, RuntimeError):
    """A PipelineStage where none can be: outside an IPUStrategy, or inside another one."""


class StageAssignmentError(ConfigurationError, RuntimeError):
    """A model whose stages cannot be asked for or executed."""
