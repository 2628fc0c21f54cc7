"""Custom operations: the public names of `tensorflow.python.ipu.custom_ops`."""

from __future__ import annotations

from ipu._internal.custom_ops.cpu_user import cpu_user_operation
from ipu._internal.custom_ops.expression import codelet_expression_op
from ipu._internal.custom_ops.precompiled import precompiled_user_op
from ipu._internal.custom_ops.vertex import Vertex, vertex
from ipu._internal.names.namespace import public_names

__all__ = ["Vertex", "codelet_expression_op", "cpu_user_operation", "precompiled_user_op", "vertex"]
__getattr__, __dir__ = public_names(__name__, __all__)
