"""The package behind `keras.ipu`, `tf_keras.ipu` and `tensorflow.python.ipu.keras`; modules are loaded when used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

STAGE_NAMES = (
    "FunctionalLayerPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "SequentialLayerPipelineStageAssignment",
)
"""Names of `extensions` that stand here, too."""


def __getattr__(name: str) -> Any:
    """Imports the submodule `name`, so that attribute access works without an import statement.

    The class `name`, which raises an error when it is used, for models that old releases had here.
    """
    if name in STAGE_NAMES:
        return getattr(import_module(f"{__name__}.extensions"), name)
    if name in (removed := import_module(f"{__name__}.ported").REMOVED):
        return removed[name]
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
