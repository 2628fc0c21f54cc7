"""Names of object code on disk: of all that it depends on, so that a change of anything finds other files."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from engine.cache_directory import cache_directory
from engine.machine_code import sources
from engine.machine_code.processor import features_text, target


def folder(kind: str, place: Path) -> Path:
    """The folder in the user's cache for object code that the sources in `place` make; not created here."""
    return cache_directory(f"{kind}-{fingerprint(place)[:16]}")


@cache
def fingerprint(place: Path) -> str:
    """A hash of the sources in a folder and all that they import, of the compilers and of the processor."""
    return hashlib.sha256(sources.digest(place) + repr(_compilers_and_processor()).encode()).hexdigest()


def _compilers_and_processor() -> tuple[object, ...]:
    from llvmlite import binding  # which a process that only makes a model does without

    compilers = metadata.version("numba"), metadata.version("llvmlite"), binding.llvm_version_info
    return *compilers, platform.python_version(), platform.machine(), target()[0], features_text()
