"""Export for serving: the public names of `tensorflow.python.ipu.serving`. `python -m ipu.serving` is the server."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names

_HOMES = {
    "export_keras": "ipu._internal.serving.export",
    "export_pipeline": "ipu._internal.serving.export",
    "export_single_step": "ipu._internal.serving.export",
}
__all__ = ["export_keras", "export_pipeline", "export_single_step"]

# Exporting imports TensorFlow, which the server does not need.
__getattr__, __dir__ = public_names(__name__, __all__, _HOMES)
