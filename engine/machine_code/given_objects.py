"""Object code from files, for a process without a compiler, and records of the objects that a process uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from engine.errors import ConfigurationError


@dataclass(frozen=True)
class ObjectOrigin:
    """The compiler and the processor of object code; `key` comes from keys.py, `cpu` and `features` from LLVM."""

    key: str
    cpu: str
    features: str
    cache_bytes: int
    """Bytes of second-level cache that the code is for."""


_origin: ObjectOrigin | None = None
_given: dict[str, bytes] = {}
_records: list[dict[str, bytes]] = []


@cache
def has_compiler() -> bool:
    """Whether this process can compile; if not, it needs object code that another has compiled."""
    return find_spec("numba") is not None


def give(origin: ObjectOrigin, objects: dict[str, bytes]) -> None:
    """Adds object code by the names of `name_of`. Raises ConfigurationError if its origin is not the first's."""
    global _origin
    if _origin not in (None, origin):
        raise ConfigurationError(
            f"Expected object code of one compiler for one processor in a process, {_origin}. Received: {origin}."
        )
    _origin = origin
    _given.update(objects)


def origin() -> ObjectOrigin:
    """The origin of the object code given. Raises ConfigurationError if there is none."""
    if _origin is None:
        raise ConfigurationError(
            "Expected a compiler, or object code for the program. Received: neither. Install numba, or, where it is "
            "installed, run `python -m engine.aot PROGRAM`, and load the program with the file of objects that it "
            "writes: engine.load(program, objects=file)."
        )
    return _origin


def name_of(path: Path) -> str:
    """The name of the object code at this path of the cache."""
    return f"{path.parent.name}/{path.name}"


def find(path: Path) -> bytes | None:
    """The object code given for a path of the cache; None if there is none."""
    return _given.get(name_of(path))


def missing(path: Path) -> ConfigurationError:
    """The error where an object is neither given nor can be compiled."""
    origin()
    return ConfigurationError(
        f"Expected object code of this release of the engine for all of the program. Received: files of objects "
        f"without {path.stem}. Write them again by `python -m engine.aot PROGRAM` of the same release, "
        f"with the same SOFTWARE_IPU_ variables in the environment."
    )


@contextmanager
def recording() -> Iterator[dict[str, bytes]]:
    """Adds all object code that the process uses to the dict, by name, while the context is open."""
    objects: dict[str, bytes] = {}
    _records.append(objects)
    try:
        yield objects
    finally:
        _records.remove(objects)


def record(path: Path, code: bytes) -> bytes:
    """Adds object code to the open records; returns it."""
    for objects in _records:
        objects[name_of(path)] = code
    return code
