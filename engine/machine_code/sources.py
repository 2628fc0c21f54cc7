"""The source files that generated code depends on: the files of a package, and the engine modules that they import.

Constants of imported modules are compiled into the code, so cache keys are hashes of these files' contents.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ENGINE = Path(__file__).parent.parent
FROM, IMPORT = re.compile(r"from +(engine[\w.]*) +import +(\([^)]*\)|[^\n]*)"), re.compile(r"import +(engine[\w.]*)")
"""Imports of the engine's modules; without anchors, as these take three times as long and nothing else is found."""


def digest(*positions: Path, engine: Path = ENGINE) -> bytes:
    """A hash of the names and contents of `sources(*positions)`."""
    return digest_of(sources(*positions, engine=engine), engine)


_digests: dict[str, bytes] = {}
"""Digests by a position's path in the engine, for the engine's present sources."""


def digest_at(position: Path) -> bytes:
    """Digest of a position's sources; for a position in the engine it is computed once."""
    if not position.is_relative_to(ENGINE):
        return digest(position)
    name = str(position.relative_to(ENGINE))
    if name not in _digests:
        _digests[name] = digest(position)
    return _digests[name]


def digests() -> dict[str, str]:
    """All digests that `digest_at` has returned so far, in hexadecimal, for another process with the same engine."""
    return {name: found.hex() for name, found in _digests.items()}


def give_digests(engine: str, found: dict[str, str]) -> None:
    """Adds digests of an engine with this `digest_of_engine`; ignores another engine's."""
    if engine == digest_of_engine():
        _digests.update({name: bytes.fromhex(each) for name, each in found.items()})


@cache
def digest_of_engine() -> str:
    """A hash of all source files of the engine, in hexadecimal."""
    found = hashlib.sha256()
    for folder, folders, names in os.walk(ENGINE):
        folders.sort()
        for name in sorted(each for each in names if each.endswith(".py")):
            position = os.path.join(folder, name)
            with open(position, "rb") as file:
                content = file.read()
            found.update(f"{position[len(str(ENGINE)) :]}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def digest_of(files: Iterable[Path], engine: Path = ENGINE) -> bytes:
    """A hash of the names and contents of these files."""
    return hashlib.sha256(b"".join(_source(file, engine)[0] for file in files)).digest()


def sources(*positions: Path, engine: Path = ENGINE) -> tuple[Path, ...]:
    """The files in `positions` (folders or files) and of the `engine` modules they import, directly or not, sorted."""
    waiting = [
        file for position in positions for file in (position.rglob("*.py") if position.is_dir() else (position,))
    ]
    found: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _source(file, engine)[1]
    return tuple(sorted(found, key=str))


def _source(file: Path, engine: Path) -> tuple[bytes, tuple[Path, ...]]:
    """A hash of a file's name and content, and the files of the engine's modules that it imports, anywhere in it.

    Files outside of this engine, such as a user's codelets, are read again each time, as they may change meanwhile.
    """
    return _own_source(file, engine) if file.is_relative_to(ENGINE) else _read_source(file, engine)


def _read_source(file: Path, engine: Path) -> tuple[bytes, tuple[Path, ...]]:
    content = file.read_bytes()
    name = str(file.relative_to(engine)) if file.is_relative_to(engine) else file.name
    digest = hashlib.sha256(name.encode() + b"\0" + content).digest()
    text = content.decode()
    found: set[Path | None] = {_file_of(module, engine) for module in IMPORT.findall(text)}
    for package, names in FROM.findall(text):
        position = _file_of(package, engine)
        if position is None or position.name != "__init__.py":
            found.add(position)
        else:  # modules of the package, or names that the package itself defines
            found.update(_file_of(f"{package}.{name}", engine) or position for name in _names(names))
    return digest, tuple(each for each in found if each is not None)


_own_source = cache(_read_source)


def _names(text: str) -> Iterable[str]:
    """Names imported by the text after `import`, without their aliases."""
    lines = (line.split("#")[0] for line in text.strip("()").splitlines())
    return (part.split()[0] for part in ",".join(lines).split(",") if part.split())


@cache
def _file_of(module: str, engine: Path) -> Path | None:
    path = engine.joinpath(*module.split(".")[1:])
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None
