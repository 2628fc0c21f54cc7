"""Export for serving: the public names of `tensorflow.python.ipu.serving`. `python -m ipu.serving` is the server."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "export_keras": "ipu.serving.export",
    "export_pipeline": "ipu.serving.export",
    "export_single_step": "ipu.serving.export",
}
__all__ = ["export_keras", "export_pipeline", "export_single_step"]


def __getattr__(name: str) -> Any:
    """Imports what exports, and TensorFlow with it, when it is used: the server does without."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *__all__})
