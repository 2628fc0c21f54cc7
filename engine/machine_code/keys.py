"""Names of object code on disk: hashes of everything it depends on, so that any change leads to other files."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

from engine.cache_directory import cache_directory
from engine.machine_code import given_objects, sources
from engine.machine_code.caches import second_level
from engine.machine_code.processor import MACHINE, features_text, target


def folder(kind: str, position: Path) -> Path:
    """The folder in the user's cache for object code compiled from the sources in `position`; not created here."""
    return cache_directory(f"{kind}-{fingerprint(position)[:16]}")


@cache
def fingerprint(position: Path) -> str:
    """A hash (hexadecimal) of a folder's sources and all they import, of the compilers and of the processor."""
    return hashlib.sha256(sources.digest_at(position) + compilers_and_processor().encode()).hexdigest()


def compilers_and_processor() -> str:
    """Names what object code depends on beside its sources: compilers, processor and cache, or given objects' key."""
    if not given_objects.has_compiler():
        return given_objects.origin().key
    from importlib import metadata

    from llvmlite import binding  # not needed by a process that only builds a model

    compilers = metadata.version("numba"), metadata.version("llvmlite"), binding.llvm_version_info
    return repr((*compilers, platform.python_version(), MACHINE, target()[0], features_text(), second_level()))
