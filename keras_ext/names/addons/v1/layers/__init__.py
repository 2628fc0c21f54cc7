"""The package of `ipu_tensorflow_addons.v1.layers`: recurrent layers of TensorFlow 1."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from ipu.ops.rnn_ops import __all__ as _layers

__getattr__, __dir__ = public_names(__name__, _layers, dict.fromkeys(_layers, "ipu.ops.rnn_ops"))
