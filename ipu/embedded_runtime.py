"""Running compiled programs from files: the public names of `tensorflow.python.ipu.embedded_runtime`."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from ipu.ops.embedded_runtime import (
    RuntimeContext,
    embedded_runtime_call,
    embedded_runtime_start,
    embedded_runtime_start_and_call,
    embedded_runtime_stop,
)

__all__ = [
    "RuntimeContext",
    "embedded_runtime_call",
    "embedded_runtime_start",
    "embedded_runtime_start_and_call",
    "embedded_runtime_stop",
]

__getattr__, __dir__ = public_names(__name__, __all__)
