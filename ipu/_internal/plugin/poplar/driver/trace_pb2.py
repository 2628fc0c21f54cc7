"""`tensorflow.compiler.plugin.poplar.driver.trace_pb2`: the message of an event."""

from ipu._internal.names.namespace import public_names
from ipu._internal.profiling.event_message import IpuTraceEvent

__all__ = ["IpuTraceEvent"]
__getattr__, __dir__ = public_names(__name__, __all__)
