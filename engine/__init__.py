"""The engine: programs in XLA's HLO, compiled for and run by a software IPU. It uses neither TensorFlow nor Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.resource_limits import limits

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine.loaded import LoadedExecutable

__all__ = ["limits", "load", "trusting_vertices"]


def load(
    path: str | Path, weights: Mapping[str, Any] | None = None, objects: str | Path | None = None
) -> LoadedExecutable:
    """Loads a compiled program from a file that this project has written; imports neither TensorFlow nor Keras.

    Args:
        path: the file.
        weights: values of the variables that the file has no value for, by name; arrays or array-likes.
        objects: a file of `python -m engine.aot`: the program's object code, for a process without Numba. Where Numba
            is installed the program is compiled, and the file is not read. Load only files that you trust.

    Returns:
        A program: `inputs` and `outputs` list names, shapes and dtypes; `run(inputs)` runs it, from any thread.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is truncated, altered, of another version or not an executable, or has code of vertices
            outside of `trusting_vertices` (engine.errors.InvalidFile), or is above the `limits`
            (engine.errors.ResourceLimit); or weights are missing or of another shape; or there is neither Numba nor
            object code for this processor and this release.
    """
    from engine.machine_code.given_objects import has_compiler

    if objects is not None and not has_compiler():
        from pathlib import Path

        from engine.files.objects import give_objects

        give_objects(Path(objects))
    # Numba takes longer to import than the rest, so it is imported on demand.
    from engine.loaded import LoadedExecutable, read_file

    return LoadedExecutable(read_file(path), weights, str(path))


def trusting_vertices() -> AbstractContextManager[None]:
    """Allows files with vertices of users' own (ipu.custom_ops.vertex) to be loaded, while open: their code runs
    unchecked.
    """
    from engine.files.trust import trusting_vertices as trusting

    return trusting()
