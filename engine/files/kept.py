"""A disk cache of modules after the passes: the next process with the same module begins at the lowering.

Its keys are hashes of the module and of every source file of the engine. Like compiled code, entries are only read
from folders that the user has for this purpose; a program in a file from elsewhere goes through all passes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from engine import cache_directory as disk
from engine.errors import InternalError, InvalidFile
from engine.files.arrays import ArrayReader, ArrayWriter
from engine.files.container import pack, parse, unpack
from engine.files.modules import read_module, unnamed, write_module
from engine.garbage import collector_paused
from engine.ir import Module
from engine.ir.device_operations import calls_of_host_functions
from engine.machine_code.sources import digest_of_engine

SHORTEST = 0.1
"""Seconds of preparation below which a module is not cached."""

logger = logging.getLogger("ipu")


@cache
def fingerprint() -> str:
    """A hash of the passes' dependencies other than the module: the engine's sources, Python and NumPy."""
    digest = hashlib.sha256(repr((sys.version_info, np.__version__, sys.byteorder)).encode())
    digest.update(digest_of_engine().encode())
    return digest.hexdigest()[:16]


def prepared(
    module: Module, prepare: Callable[[Module], Module], folder: Path | None = None, options: str = ""
) -> Module:
    """`prepare(module)`, from the disk if an earlier process has cached it there.

    `options` are those of `prepare` that affect its results. `folder` is the cache's, by default in the user's cache.
    A folder that cannot be written is no error, and neither is a damaged file.
    """
    if any(calls_of_host_functions(module)):
        return prepare(module)  # no other process has its functions
    try:
        content = _encoded(unnamed(module))
    except InternalError:
        return prepare(module)  # an attribute that files do not have: not a module that was traced
    root = disk.user_cache() / "software-ipu" if folder is None else folder
    path = root / f"programs-{fingerprint()}" / hashlib.sha256(options.encode() + b"\0" + content).hexdigest()[:32]
    kept = disk.load(path)
    if kept is not None:
        try:
            return replace(_decoded(kept, str(path)), name=module.name)
        except InvalidFile as error:
            logger.warning("The program is compiled again: %s", error)
    start = time.perf_counter()
    result = prepare(module)
    if time.perf_counter() - start >= SHORTEST:
        disk.store(path, _encoded(result))
    return result


def _encoded(module: Module) -> bytes:
    arrays = ArrayWriter()
    text = json.dumps(write_module(module, arrays), separators=(",", ":"), allow_nan=False)
    return pack({}, {"module": text.encode(), "arrays": arrays.content()})


def _decoded(content: bytes, origin: str) -> Module:
    _, sections = unpack(content, origin)
    with collector_paused():
        return read_module(parse(sections["module"], origin), ArrayReader(sections["arrays"]))
