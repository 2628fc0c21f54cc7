"""Files of object code, in the container of executables: for processes without a compiler."""

from __future__ import annotations

from pathlib import Path

from engine.errors import InvalidFile
from engine.files.container import pack, unpack
from engine.machine_code import given_objects, sources
from engine.machine_code.given_objects import Origin
from engine.machine_code.instruction_sets import check_flags
from engine.private_files import read_regular
from engine.whole_files import write_whole


def write_objects(path: Path, origin: Origin, objects: dict[str, bytes], required: list[str]) -> None:
    """Writes a file of object code; `required` are the instruction sets it uses, by names of `flag_of`."""
    fields = {"kind": "objects", "key": origin.key, "cpu": origin.cpu, "features": origin.features}
    engine = {"engine": sources.digest_of_engine(), "digests": sources.digests()}
    write_whole(path, pack({**fields, "required": required, **engine}, objects))


def give_objects(path: Path) -> None:
    """Makes the object code of a file this process' own. It is machine code, which nothing checks.

    Raises OSError; InvalidFile for another kind of file or an altered one; ConfigurationError for another processor, or
    files of several processors or compilers in one process.
    """
    header, sections = unpack(read_regular(path), str(path))
    if header.get("kind") != "objects":
        raise InvalidFile(f"Expected a file that `python -m engine.aot` has written. Received: {path}, which is not.")
    check_flags(header["required"], str(path))
    origin = Origin(header["key"], header["cpu"], header["features"])
    sources.give_digests(header.get("engine", ""), header.get("digests", {}))
    given_objects.give(origin, {name: bytes(content) for name, content in sections.items()})
