"""The container format of executable files: a magic number, a version, a header, sections, and a checksum for each.

Integers are little-endian. docs/executable_format.md describes every byte.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidFile

MAGIC = b"\x89IPUEXE\n"
VERSION = 1
ALIGNMENT = 64
PREFIX = struct.Struct("<8sIIQ32s")
"""Magic number, version, zero, length of the header, sha256 of the header."""
MOST_HEADER_BYTES = 1 << 26


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes]) -> bytes:
    """The bytes of a whole file. The header gets, under "sections", offset, size and checksum of each section."""
    offsets, body = {}, b""
    for name, content in sections.items():
        body += bytes(-len(body) % ALIGNMENT)
        offsets[name] = {"offset": len(body), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        body += content
    text = json.dumps({**header, "sections": offsets}, separators=(",", ":")).encode()
    text += b" " * (-(PREFIX.size + len(text)) % ALIGNMENT)
    return PREFIX.pack(MAGIC, VERSION, 0, len(text), hashlib.sha256(text).digest()) + text + body


def unpack(data: bytes, origin: str) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """The header and the sections of a file, `origin` being its name in messages.

    Raises InvalidFile for another kind of file, another version, or a truncated, longer or altered file.
    """
    header, start = _header(data, origin)
    offsets = header.pop("sections", None)
    if not isinstance(offsets, dict):
        raise invalid(origin, "a header with its sections", "one without")
    sections, end = {}, 0
    for name, extent in offsets.items():
        offset, size = _natural(extent, "offset", origin), _natural(extent, "bytes", origin)
        if offset < end or offset > end + ALIGNMENT or start + offset + size > len(data):
            raise invalid(origin, f"section {name!r} within {len(data)} bytes", "a file that is cut off or spliced")
        end = offset + size
        sections[name] = memoryview(data)[start + offset : start + end]
        if hashlib.sha256(sections[name]).hexdigest() != extent.get("sha256"):
            raise invalid(origin, f"section {name!r} as it was written", "one that has been altered")
    if start + end != len(data):
        raise invalid(origin, f"{start + end} bytes", f"{len(data)}")
    return header, sections


def digest_of_file(data: bytes) -> str:
    """The hash of a file that `unpack` accepts, in hexadecimal: the header's hash, as the header has all others."""
    return PREFIX.unpack_from(data)[4].hex() if len(data) >= PREFIX.size else ""


def _header(data: bytes, origin: str) -> tuple[dict[str, Any], int]:
    if len(data) < PREFIX.size or not data.startswith(MAGIC):
        raise invalid(origin, "an executable of this engine", "another kind of file, or the beginning of one")
    _, version, reserved, length, checksum = PREFIX.unpack_from(data)
    if version != VERSION or reserved:
        advice = "Export the program again with this version" if version < VERSION else "Install a newer version"
        raise InvalidFile(f"Expected version {VERSION} of the format in {origin}. Received: {version}. {advice}.")
    start = PREFIX.size + length
    if length > MOST_HEADER_BYTES or start > len(data):
        raise invalid(origin, f"a header of {length} bytes", f"a file of {len(data)} bytes, which is cut off")
    text = data[PREFIX.size : start]
    if hashlib.sha256(text).digest() != checksum:
        raise invalid(origin, "a header as it was written", "one that has been altered")
    header = parse(text, origin)
    if not isinstance(header, dict):
        raise invalid(origin, "a header that is a JSON object", type(header).__name__)
    return header, start


def parse(text: bytes | memoryview, origin: str) -> Any:
    """A JSON value, without NaN; raises InvalidFile for anything else."""
    try:
        return json.loads(bytes(text), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise invalid(origin, "JSON", f"text that is not ({error})") from error


def refuse_constant(name: str) -> None:
    """Raises ValueError: NaN and infinities are no numbers of JSON, though Python reads them."""
    raise ValueError(f"{name} is no JSON number")


def _natural(extent: Any, name: str, origin: str) -> int:
    value = extent.get(name) if isinstance(extent, dict) else None
    if type(value) is not int or value < 0:
        raise invalid(origin, f"{name} of a section: an integer of at least 0", repr(value))
    return value


def invalid(origin: str, expected: str, received: str) -> InvalidFile:
    """The error of an invalid file."""
    return InvalidFile(f"Expected {expected} in {origin}. Received: {received}. Copy or export the program again.")
