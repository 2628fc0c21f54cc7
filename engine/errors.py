"""The closed set of errors. Each message says expected, received, nearest legal value and what to change."""

from __future__ import annotations

from typing import Any


class IPUError(Exception):
    """Base class of every error this project raises on purpose."""

    # AutoGraph keeps the class of errors that are made like any Exception, and adds the lines of the user's function.
    __init__ = Exception.__init__


class UnsupportedOperation(IPUError, NotImplementedError):
    """The engine has no way to run an operation; the message names it and where it came from."""


class ConfigurationError(IPUError, ValueError):
    """A configuration whose parts contradict each other or ask for what the device lacks."""


class StepCountError(IPUError, ValueError):
    """Steps, batches and accumulation counts that do not divide."""


class AccumulationStepError(StepCountError, RuntimeError):
    """Steps that are no whole number of updates, or micro-batches that a pipeline's schedule cannot take.

    Programs for IPUs catch a RuntimeError, those of Keras a ValueError.
    """


class OutOfTileMemory(IPUError, MemoryError):
    """A program that does not fit into the tiles' memory. `account` (engine.profile.Account) says what lies where,
    `levers` (engine.profile.levers.Lever) what would help, `program` is the engine's, if it is one of a single IPU."""

    account: Any = None
    program: Any = None
    levers: tuple[Any, ...] = ()


class FloatingPointException(IPUError, FloatingPointError):
    """A floating-point exception that the configuration asks to hear of; the message names the operation and layer.

    `exception` is "inv", "div0" or "oflo"; `opcode`, `op_name` and `layer` say where it arose, `step` in which step of
    the call, from 0 on, and `elements` for how many elements of the operation's result.
    """

    exception: str = ""
    opcode: str = ""
    op_name: str = ""
    layer: str = ""
    step: int = 0
    elements: int = 0


class CallTimeout(IPUError, TimeoutError):
    """A call that was still running at the end of the time it was given."""


class FeedEnded(IPUError, EOFError):
    """A queue has no more elements, and a program asked for one."""


class InvalidFile(IPUError, ValueError):
    """A file that is not what its name promises."""


class InternalError(IPUError, RuntimeError):
    """A broken promise inside the engine. Always a fault of this project, never of the user's program."""


class DebugError(InternalError):
    """What the debug executor has found: a compute set that touches what it does not say, or too early."""
