"""Compiling functions into files: the public names of `tensorflow.python.ipu.application_compile_op`."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from ipu.ops.application_compile_op import experimental_application_compile_op

__all__ = ["experimental_application_compile_op"]

__getattr__, __dir__ = public_names(__name__, __all__)
