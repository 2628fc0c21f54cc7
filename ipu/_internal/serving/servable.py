"""An exported directory, loaded for the server: one batch in, one batch out."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine import load
from engine.errors import CallTimeout, InvalidFile
from engine.loaded import LoadedExecutable
from ipu._internal.serving.manifest import Manifest, read_manifest

Arrays = list[np.ndarray]
logger = logging.getLogger("ipu.serving")


class BatchFunction(Protocol):
    """A function that runs a batch."""

    def __call__(self, arrays: Arrays, timeout: float | None = None) -> Arrays:
        """The outputs. Raises CallTimeout if the compiled program has not ended within `timeout` seconds."""


@dataclass(frozen=True)
class Servable:
    """A version of a model. `run` takes the arrays of one batch in the order of the manifest's inputs."""

    name: str
    version: int
    manifest: Manifest
    run: BatchFunction

    def warm_up(self, timeout: float | None = None) -> None:
        """Runs a batch of zeros, so that no client waits for a first run; not with preprocessing, which may refuse it.

        A timeout on zeros is logged only, as the program may end on the data of clients.
        """
        if self.manifest.has_preprocessing:
            return
        try:
            self.run([np.zeros(tensor.shape, tensor.dtype) for tensor in self.manifest.inputs], timeout)
        except CallTimeout as error:
            logger.warning("%s, version %d, is served without a first batch: %s", self.name, self.version, error)


def open_servables(directory: str | Path, name: str | None = None) -> list[Servable]:
    """The newest version in a directory of versions with numbers for names, or `directory` itself if it is a version.

    The name of the model is that of the directory of versions, unless given. A directory that is a version itself, and
    whose name is no number, is version 1. Raises InvalidFile where there is none, or a broken one.
    """
    path = Path(directory).resolve()
    if not path.is_dir():
        raise InvalidFile(f"Expected a directory that was exported. Received: {str(directory)!r}, which is none.")
    if (path / "saved_model.pb").is_file():
        version = _version(path)
        default = path.name if version is None else path.parent.name
        return [open_servable(path, name or default, 1 if version is None else version)]
    versions = {_version(child): child for child in path.iterdir() if (child / "saved_model.pb").is_file()}
    numbers = [number for number in versions if number is not None]
    if not numbers:
        raise InvalidFile(
            f"Expected a SavedModel, or a directory of them with numbers for names. Received: {str(directory)!r}, "
            "which holds neither."
        )
    return [open_servable(versions[max(numbers)], name or path.name, max(numbers))]


def open_servable(path: Path, name: str, version: int) -> Servable:
    """Loads a version; imports TensorFlow only for steps before or after the program. Raises InvalidFile."""
    manifest = read_manifest(path)
    try:
        executable = load(path / "assets" / manifest.executable)
    except OSError as error:
        raise InvalidFile(f"Expected {manifest.executable} in the assets of {path}. Received: {error}.") from error
    _check_program(manifest, executable)

    def run(arrays: Arrays, timeout: float | None = None) -> Arrays:
        return [np.asarray(result) for result in executable.run(arrays, timeout)]

    if manifest.has_preprocessing or manifest.has_postprocessing:
        return Servable(name, version, manifest, _with_steps(path, manifest, run))
    return Servable(name, version, manifest, run)


def _check_program(manifest: Manifest, executable: LoadedExecutable) -> None:
    for what, described, tensors in (
        ("inputs", manifest.program_inputs, executable.inputs),
        ("outputs", manifest.program_outputs, executable.outputs),
    ):
        expected = [(tuple(each.shape), np.dtype(each.dtype).name) for each in tensors]
        received = [(each.shape, each.dtype) for each in described]
        if expected != received:
            raise InvalidFile(
                f"Expected a description with the {what} of the compiled program, {expected}. Received: {received}. "
                "Export the model again."
            )


def _with_steps(path: Path, manifest: Manifest, program: BatchFunction) -> BatchFunction:
    import tensorflow as tf

    model = tf.saved_model.load(str(path))
    lock = threading.Lock()

    def tensors(arrays: Arrays, dtypes: list[str]) -> list[Any]:
        return [tf.constant(array, tf.as_dtype(dtype)) for array, dtype in zip(arrays, dtypes, strict=True)]

    def run(arrays: Arrays, timeout: float | None = None) -> Arrays:
        with lock:
            if manifest.has_preprocessing:
                given = tensors(arrays, [each.dtype for each in manifest.inputs])
                arrays = [each.numpy() for each in model.preprocessing(*given)]
            arrays = program(arrays, timeout)
            if manifest.has_postprocessing:
                given = tensors(arrays, [each.dtype for each in manifest.program_outputs])
                arrays = [each.numpy() for each in model.postprocessing(*given)]
            return arrays

    return run


def _version(path: Path) -> int | None:
    return int(path.name) if path.name.isascii() and path.name.isdigit() and len(path.name) < 19 else None
