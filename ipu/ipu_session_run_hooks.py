"""Hooks of sessions: the public names of `tensorflow.python.ipu.ipu_session_run_hooks` (Python API, 18.12.4)."""

from ipu._internal.estimators.logging_hook import IPULoggingTensorHook
from ipu._internal.names.namespace import public_names

__all__ = ["IPULoggingTensorHook"]
__getattr__, __dir__ = public_names(__name__, __all__)
