"""Operands of expressions, under their name in earlier releases: `tensorflow.python.ipu.vertex_edsl`."""

from __future__ import annotations

from ipu._internal.custom_ops.expression import Operand as VertexExpr
from ipu._internal.names.namespace import public_names

__all__ = ["PlaceholderVertexExpr", "VertexExpr"]
__getattr__, __dir__ = public_names(__name__, __all__)

PlaceholderVertexExpr = VertexExpr
"""The class of the arguments of a function for `ipu.custom_ops.codelet_expression_op`, one for each tensor."""
