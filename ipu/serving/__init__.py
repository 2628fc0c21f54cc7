"""Export for serving: the public names of `tensorflow.python.ipu.serving`. `python -m ipu.serving` is the server."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names

__all__ = ["export_keras", "export_pipeline", "export_single_step"]

# Exporting imports TensorFlow, which the server does not need.
__getattr__, __dir__ = public_names(__name__, __all__, dict.fromkeys(__all__, "ipu._internal.serving.export"))
