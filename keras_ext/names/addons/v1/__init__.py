"""The package of `ipu_tensorflow_addons.v1`: layers for programs of TensorFlow 1."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(__name__, ("layers", "optimizers"))
