"""The closed set of errors. Each message states what was expected, what was received and what to change."""

from __future__ import annotations

from typing import Any


class IPUError(Exception):
    """Base class of every error this project raises on purpose."""

    # AutoGraph keeps the class of errors that are made like any Exception, and adds lines of the user's function.
    __init__ = Exception.__init__


class UnsupportedOperation(IPUError, NotImplementedError):
    """The engine has no way to run an operation; the message names it and where it came from."""


class ConfigurationError(IPUError, ValueError):
    """A configuration whose parts contradict each other, or that needs a feature the device lacks."""


class StepCountError(IPUError, ValueError):
    """Steps, batches and accumulation counts that do not divide evenly."""


class AccumulationStepError(StepCountError, RuntimeError):
    """Steps that are no whole number of updates, or micro-batches that a pipeline's schedule cannot take.

    Programs for IPUs catch a RuntimeError, programs of Keras a ValueError.
    """


class OutOfTileMemory(IPUError, MemoryError):
    """A program that does not fit into the tiles' memory. `estimate` (engine.profile.program_estimate.Estimate) is the
    cost report, `levers` (engine.profile.levers.Lever) are ways to reduce memory, `program` is the engine's, if for a
    single IPU. `source` gives the line of the user's program for an op_name, empty if it is unknown."""

    estimate: Any = None
    program: Any = None
    levers: tuple[Any, ...] = ()
    source: Any = staticmethod(lambda op_name: "")


class FloatingPointException(IPUError, FloatingPointError):
    """A floating-point exception that the configuration enables; the message names the operation and layer.

    `exception` is "inv", "div0" or "oflo"; `opcode`, `op_name` and `layer` name its origin, `step` is the step of the
    call, from 0 on, and `elements` the number of elements of the operation's result that raised it.
    """

    exception: str = ""
    opcode: str = ""
    op_name: str = ""
    layer: str = ""
    step: int = 0
    elements: int = 0


class InvalidValue(IPUError, ValueError):
    """A value of the data that an operation does not take, such as a label that is no class; the message names it.

    `operation` is TensorFlow's, `op_name` and `layer` name its origin. `value` is at `position` of the operand, in
    `step` of the call, from 0 on. Variables have their values from before that step.
    """

    operation: str = ""
    op_name: str = ""
    layer: str = ""
    position: tuple[int, ...] = ()
    value: Any = None
    step: int = 0


class HostFunctionError(IPUError, RuntimeError):
    """A function of the host, called by a program, that failed or returned something other than declared."""


class VertexError(IPUError, ValueError):
    """A vertex of the user's own that cannot be compiled, or that was called with arrays other than it declares."""


class CallTimeout(IPUError, TimeoutError):
    """A call that was still running at its time limit."""


class ProcessError(IPUError, RuntimeError):
    """Another process of a run that ended, is too slow, or runs a different program or version."""


class FeedEnded(IPUError, EOFError):
    """A program dequeued from a queue that has no more elements."""


class InvalidFile(IPUError, ValueError):
    """A file that is not of the format that its name promises."""


class ResourceLimit(InvalidFile):
    """A file's program above the limits of size, depth or seconds; the message names the limit and how to raise it."""


OF_THE_ENVIRONMENT = (MemoryError, OSError, ImportError)
"""Errors of the machine and of the installation, which no content of a file leads to."""


class InternalError(IPUError, RuntimeError):
    """A violated invariant of the engine. Always a fault of this project, never of the user's program."""


class DebugError(InternalError):
    """A finding of the debug executor: a compute set that touches bytes outside its spans, or too early."""
