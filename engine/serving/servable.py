"""An exported directory, loaded for the server: one batch in, one batch out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine import load
from engine.errors import CallTimeout, ConfigurationError, InvalidFile, IPUError
from engine.serving.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from engine.loaded import LoadedExecutable

Arrays = list[np.ndarray]
logger = logging.getLogger("ipu.serving")


class BatchFunction(Protocol):
    """A function that runs a batch."""

    def __call__(self, arrays: Arrays, timeout: float | None = None) -> Arrays:
        """The outputs. Raises CallTimeout if the compiled program has not ended within `timeout` seconds."""


@dataclass(frozen=True, eq=False)
class Servable:
    """A version of a model. `run` takes the arrays of one batch in the order of the manifest's inputs.

    With `is_brief` a run takes less time than waking another thread for it.
    """

    name: str
    version: int
    manifest: Manifest
    run: BatchFunction
    is_brief: bool = False

    def warm_up(self, timeout: float | None = None) -> None:
        """Runs a batch of zeros, so that no client waits for a first run, except with preprocessing.

        Preprocessing may refuse zeros. A timeout on zeros is only logged, as the program
        may end on the data of clients.
        """
        if self.manifest.has_preprocessing:
            return
        try:
            self.run([np.zeros(tensor.shape, tensor.numpy_dtype) for tensor in self.manifest.inputs], timeout)
        except CallTimeout as error:
            logger.warning("%s, version %d, is served without a first batch: %s", self.name, self.version, error)


WithSteps = Callable[[Path, Manifest, BatchFunction], BatchFunction]
"""Adds the steps of an exported directory, before and after the program, to the function that runs the program."""


def open_servable(
    directory: str | Path,
    name: str | None = None,
    with_steps: WithSteps | None = None,
    objects: str | Path | None = None,
) -> Servable:
    """The newest version in a directory of versions with numbers for names, or `directory` itself if it is a version.

    The name of the model is that of the directory of versions, unless given. A directory that is a version itself, and
    whose name is no number, is version 1. `objects` is as in engine.load. Raises InvalidFile for a missing or broken
    version, and ConfigurationError for a version with steps before or after the program without `with_steps`.
    """
    path = Path(directory).resolve()
    if not path.is_dir():
        raise InvalidFile(f"Expected a directory that was exported. Received: {str(directory)!r}, which is none.")
    if (path / "saved_model.pb").is_file():
        version = _version(path)
        default = path.name if version is None else path.parent.name
        return _loaded(path, name or default, 1 if version is None else version, with_steps, objects)
    versions = _versions(path)
    if not versions:
        raise InvalidFile(
            f"Expected a SavedModel, or a directory of them with numbers for names. Received: {str(directory)!r}, "
            "which holds neither."
        )
    newest = max(versions)
    return _loaded(versions[newest], name or path.name, newest, with_steps, objects)


def reloading(
    directory: str | Path,
    name: str | None = None,
    with_steps: WithSteps | None = None,
    objects: str | Path | None = None,
    timeout: float | None = None,
) -> Callable[[Servable], Servable | None]:
    """Returns a function from the served version to the newest version in the directory, loaded and warm.

    The function returns None if that version is served already, or cannot be loaded, which is logged once for each
    reason. A directory that is a version itself is served for good.
    """
    path, seen = Path(directory).resolve(), set[str]()

    def reload(served: Servable) -> Servable | None:
        versions = {} if (path / "saved_model.pb").is_file() else _versions(path)
        if not versions or served.version == max(versions):
            return None
        try:
            found = open_servable(path, name, with_steps, objects)
            found.warm_up(timeout)
        except (IPUError, OSError) as error:
            if str(error) not in seen:
                logger.warning("%s, version %d, is not served: %s", path.name, max(versions), error)
                seen.add(str(error))
            return None
        logger.info("%s, version %d, is served from now on", found.name, found.version)
        return found

    return reload


def _versions(path: Path) -> dict[int, Path]:
    """The SavedModels in a directory, by the numbers that they have for names."""
    try:
        found = {_version(child): child for child in path.iterdir() if (child / "saved_model.pb").is_file()}
    except OSError:  # the directory is being replaced
        return {}
    return {number: child for number, child in found.items() if number is not None}


def _loaded(path: Path, name: str, version: int, with_steps: WithSteps | None, objects: str | Path | None) -> Servable:
    """Loads a version. Raises the errors of `open_servable`."""
    manifest = read_manifest(path)
    _check_requests(manifest)
    try:
        executable = load(path / "assets" / manifest.executable, objects=objects)
    except OSError as error:
        raise InvalidFile(f"Expected {manifest.executable} in the assets of {path}. Received: {error}.") from error
    _check_program(manifest, executable)

    def run(arrays: Arrays, timeout: float | None = None) -> Arrays:
        return [np.asarray(result) for result in executable.run(arrays, timeout)]

    if not (manifest.has_preprocessing or manifest.has_postprocessing):
        return Servable(name, version, manifest, run, executable.is_brief)
    if with_steps is None:
        raise ConfigurationError(
            f"Expected a program alone. Received: {path}, with steps before or after it, which TensorFlow runs. Serve "
            "it by `python -m ipu.serving`, of the package software-ipu."
        )
    return Servable(name, version, manifest, with_steps(path, manifest, run))


def _check_requests(manifest: Manifest) -> None:
    for what, tensors in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for tensor in tensors:
            if tensor.dtype.startswith("complex"):
                raise ConfigurationError(
                    f"Expected {what} that JSON has: real numbers, booleans or strings. Received: {tensor.name!r} of "
                    f"dtype {tensor.dtype}. Export a function of real and imaginary parts, or use engine.load."
                )


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


def _version(path: Path) -> int | None:
    return int(path.name) if path.name.isascii() and path.name.isdigit() and len(path.name) < 19 else None
