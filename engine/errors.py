"""The closed set of errors. Each message says expected, received, nearest legal value and what to change."""


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


class OutOfTileMemory(IPUError, MemoryError):
    """A program that does not fit into the tiles' memory."""


class StarvedFeed(IPUError, RuntimeError):
    """A program that waits for data which no one will send."""


class FeedEnded(IPUError, EOFError):
    """A queue has no more elements, and a program asked for one."""


class InvalidFile(IPUError, ValueError):
    """A file that is not what its name promises."""


class InternalError(IPUError, RuntimeError):
    """A broken promise inside the engine. Always a fault of this project, never of the user's program."""
