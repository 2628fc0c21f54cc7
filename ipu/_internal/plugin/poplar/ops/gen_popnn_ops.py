"""`tensorflow.compiler.plugin.poplar.ops.gen_popnn_ops`: activation functions."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from ipu.ops.nn_ops import gelu as ipu_gelu
from ipu.ops.nn_ops import hard_sigmoid as ipu_hard_sigmoid
from ipu.ops.nn_ops import softmax as ipu_softmax
from ipu.ops.nn_ops import swish as ipu_swish

__all__ = ["ipu_gelu", "ipu_hard_sigmoid", "ipu_softmax", "ipu_swish"]
__getattr__, __dir__ = public_names(__name__, __all__)
