"""The engine: programs in XLA's HLO, compiled for and run by a software IPU. It knows neither TensorFlow nor Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from engine.loaded import LoadedExecutable

__all__ = ["load"]


def load(path: str | Path, weights: Mapping[str, Any] | None = None) -> LoadedExecutable:
    """Loads a compiled program from a file that this project has written; imports neither TensorFlow nor Keras.

    Args:
        path: the file.
        weights: values of the variables that the file has no value for, by name; arrays or array-likes.

    Returns:
        A program: `inputs` and `outputs` list names, shapes and dtypes; `run(inputs)` runs it, from any thread.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is truncated, altered, of another version or not an executable
            (engine.errors.InvalidFile); or weights are missing or of another shape.
    """
    # Numba takes longer to import than the rest, so it is imported on demand.
    from engine.files import read_executable
    from engine.loaded import LoadedExecutable

    return LoadedExecutable(read_executable(path), weights, str(path))
