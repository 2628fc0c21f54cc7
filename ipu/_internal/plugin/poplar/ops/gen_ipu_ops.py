"""`tensorflow.compiler.plugin.poplar.ops.gen_ipu_ops`: the event trace as an operation."""

from ipu._internal.names.namespace import public_names
from ipu._internal.profiling.event_trace import ipu_event_trace

__all__ = ["ipu_event_trace"]
__getattr__, __dir__ = public_names(__name__, __all__)
