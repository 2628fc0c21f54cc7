"""Stores compiled programs in the folders of the configuration and TF_POPLAR_FLAGS."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import InvalidFile
from engine.files.executable_file import SUFFIX, ExecutableFile, read_executable, to_bytes, write_executable
from engine.files.kept import fingerprint
from engine.files.modules import unnamed
from engine.files.signature import Signature, tensor_info
from engine.files.trust import trusting_vertices
from engine.ir import Module, Shape
from engine.ir.device_operations import calls_of_host_functions
from ipu._internal.config.enumerations import DeviceConnectionType
from ipu._internal.config.system import current_system, executable_cache_path

logger = logging.getLogger("ipu")
NOT_OF_THE_PROGRAM = frozenset({"serialization_output_folder", "device_connection", "select_ipus", "auto_select_ipus"})
"""Options that do not change the compiled program."""


def executable_folders() -> list[Path]:
    """The folders of executables: executable_cache_path of TF_POPLAR_FLAGS, and serialization_output_folder."""
    named = (executable_cache_path(), current_system().config.serialization_output_folder)
    return [Path(folder).expanduser() for folder in dict.fromkeys(named) if folder]


def store_executable(module: Module, roles: list[str], constants: dict[int, np.ndarray]) -> Path | None:
    """Stores a program in each configured folder, and returns the first folder, or None if there is none.

    A program that calls functions of this process is not stored. An existing file is kept, unless it is damaged.
    Raises OSError for a serialization_output_folder that cannot be written; FailedPreconditionError if programs are
    only compiled and no folder is configured.
    """
    folders = executable_folders()
    if any(calls_of_host_functions(module)):
        return None  # no other process has its functions
    if not folders:
        if current_system().config.device_connection.type is DeviceConnectionType.PRE_COMPILE:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Expected a folder for executables with DeviceConnectionType.PRE_COMPILE. Received: none. Set "
                "TF_POPLAR_FLAGS=--executable_cache_path=<folder>, or IPUConfig.serialization_output_folder.",
            )
        return None
    file = unnamed_file(module, roles, constants)
    name = f"{_key(file)}{SUFFIX}"
    for folder in folders:
        _store(folder / name, file)
    return folders[0]


def _store(path: Path, file: ExecutableFile) -> None:
    try:
        with trusting_vertices():
            read_executable(path)
        return
    except InvalidFile as error:
        logger.warning("%s It is written again.", error)
    except OSError:
        pass  # missing; or the write below reports the fault of the folder
    try:
        write_executable(path, file)
    except OSError as error:
        if path.parent == Path(current_system().config.serialization_output_folder).expanduser():
            raise
        logger.warning(
            "Executables cannot be stored in %s (%s). Set executable_cache_path to a folder that can be written.",
            path.parent,
            error.strerror or error,
        )


def _key(file: ExecutableFile) -> str:
    options = {k: v for k, v in current_system().config.to_dict().items() if k.split(".")[0] not in NOT_OF_THE_PROGRAM}
    digest = hashlib.sha256(repr((fingerprint(), sorted(options.items(), key=lambda item: item[0]))).encode())
    digest.update(to_bytes(replace(file, module=unnamed(file.module))))
    return digest.hexdigest()[:32]


def unnamed_file(module: Module, roles: list[str], constants: dict[int, np.ndarray]) -> ExecutableFile:
    """The file of a program whose inputs, outputs and variables have numbers instead of names."""
    taken = set(module.aliases.values())
    feeds = [p.array_shape for p, role in zip(module.entry.parameters, roles, strict=True) if role == "feed"]
    outputs = [result.array_shape for k, result in enumerate(module.results) if k not in taken]
    return ExecutableFile(module, roles, constants, signature_of(feeds, outputs))


def signature_of(
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Signature:
    """A signature with the given names, or else input_0, input_1 ... and output_0, output_1 ..."""

    def infos(kind: str, shapes: Sequence[Shape], names: Sequence[str] | None) -> tuple[Any, ...]:
        chosen = [f"{kind}_{k}" for k in range(len(shapes))] if names is None else names
        return tuple(tensor_info(name, shape) for name, shape in zip(chosen, shapes, strict=True))

    return Signature(infos("input", inputs, input_names), infos("output", outputs, output_names))
