"""Files of object code, in the container of executables: for processes without a compiler.

Object code runs unchecked. Without a key of the deployment, a file of object code is accepted if only the user can have
written it; with a key, if it has a signature made with this key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.errors import ConfigurationError, InvalidFile
from engine.files.container import pack, unpack
from engine.machine_code import given_objects, sources
from engine.machine_code.given_objects import ObjectOrigin
from engine.machine_code.instruction_sets import check_flags
from engine.private_files import WRITABLE_BY_OTHERS, read_private, read_regular
from engine.whole_files import write_whole

KEY = "SOFTWARE_IPU_OBJECTS_KEY"
"""The environment variable that names a file with the deployment's key, which only the user can write."""
LEAST_KEY, MOST_KEY = 16, 4096
"""Fewest and most bytes of a key."""
SIGNATURE = "signature"


def write_objects(path: Path, origin: ObjectOrigin, objects: dict[str, bytes], required: list[str]) -> None:
    """Writes a file of object code; `required` are the instruction sets it uses, by names of `flag_of`.

    The file is signed if this process has a key. Raises OSError, and ConfigurationError for an invalid key.
    """
    fields = {"kind": "objects", **asdict(origin)}
    engine = {"engine": sources.digest_of_engine(), "digests": sources.digests()}
    header = {**fields, "required": required, **engine}
    key = _key()
    if key is not None:
        header[SIGNATURE] = _signature(key, header, objects)
    write_whole(path, pack(header, objects))
    path.chmod(path.stat().st_mode & ~WRITABLE_BY_OTHERS)


def give_objects(path: Path) -> None:
    """Makes the object code of a file this process' own; no check is made of what the machine code does.

    Raises OSError; InvalidFile for another kind of file or an altered one, for one that others may have written, and
    for one without the signature of this process' key; ConfigurationError for another processor, files of several
    processors or compilers in one process, or an invalid key.
    """
    key = _key()
    header, sections = unpack(_content(path, key), str(path))
    if header.get("kind") != "objects" or not _is_described(header):
        raise InvalidFile(f"Expected a file that `python -m engine.aot` has written. Received: {path}, which is not.")
    given = header.pop(SIGNATURE, "")
    if key is not None and not hmac.compare_digest(str(given).encode(), _signature(key, header, sections).encode()):
        received = "another signature" if given else "no signature"
        raise InvalidFile(
            f"Expected object code in {path} that is signed with the key in {KEY}. Received: {received}. Write the "
            "file again by `python -m engine.aot` with that key, or unset the variable."
        )
    check_flags(header["required"], str(path))
    origin = ObjectOrigin(header["key"], header["cpu"], header["features"], header["cache_bytes"])
    sources.give_digests(header.get("engine", ""), header.get("digests", {}))
    given_objects.give(origin, {name: bytes(content) for name, content in sections.items()})


def _is_described(header: Mapping[str, Any]) -> bool:
    """Whether a header names the compiler and the processor of its object code."""
    required = header.get("required")
    texts = [header.get(name) for name in ("key", "cpu", "features")]
    described = isinstance(required, list) and all(isinstance(each, str) for each in (*texts, *required))
    return described and isinstance(header.get("cache_bytes"), int)


def _content(path: Path, key: bytes | None) -> bytes:
    if key is not None:
        return read_regular(path)
    try:
        return read_private(path)
    except PermissionError as error:
        raise InvalidFile(
            f"Expected a file of machine code that only you can have written. Received: {error}. Copy it to a file of "
            f"your own, or sign it: set {KEY} for `python -m engine.aot` and here."
        ) from error


def _key() -> bytes | None:
    """The key of the deployment; None where the environment names none. Raises ConfigurationError for a wrong one."""
    named = os.environ.get(KEY)
    if not named:
        return None
    try:
        key = read_private(Path(named)).strip()
    except (OSError, InvalidFile) as error:
        raise ConfigurationError(f"Expected a file with a key in {KEY}. Received: {named}: {error}") from error
    if not LEAST_KEY <= len(key) <= MOST_KEY:
        expected = f"{LEAST_KEY} to {MOST_KEY} bytes in the file that {KEY} names"
        raise ConfigurationError(
            f"Expected {expected}. Received: {len(key)}. Make one: openssl rand -hex 32 > {named}."
        )
    return key


def _signature(key: bytes, header: Mapping[str, Any], objects: Mapping[str, bytes | memoryview]) -> str:
    """The HMAC-SHA256 of a header and of its objects' names and contents, in hexadecimal."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in objects.items()}
    text = json.dumps([dict(header), digests], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
