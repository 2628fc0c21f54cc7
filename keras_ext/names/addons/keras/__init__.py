"""The package of `ipu_tensorflow_addons.keras`: layers and optimizers of the Keras that `tf.keras` is."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(__name__, ("layers", "optimizers"))
