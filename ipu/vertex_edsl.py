"""Operands of expressions, under the name that earlier releases have: `tensorflow.python.ipu.vertex_edsl`."""

from __future__ import annotations

from ipu._internal.custom_ops.expression import Operand as VertexExpr
from ipu._internal.names.namespace import public_names

__all__ = ["PlaceholderVertexExpr", "VertexExpr"]
__getattr__, __dir__ = public_names(__name__, __all__)

PlaceholderVertexExpr = VertexExpr
"""Class of the arguments that a function given to `ipu.custom_ops.codelet_expression_op` gets, one for each tensor."""
