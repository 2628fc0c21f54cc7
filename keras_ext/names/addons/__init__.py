"""The package of `ipu_tensorflow_addons`, where later releases have layers and optimizers."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(__name__, ("keras", "layers", "optimizers", "v1"))
