"""Arrays in a section of a file: row-major, little-endian like the supported hosts, at multiples of 64 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import InvalidFile
from engine.files.attributes import a_list, integer, integers
from engine.ir.shape import NUMPY_TYPES, Shape, shape_of

ALIGNMENT = 64
MOST_BYTES = 1 << 40
MOST_DIMENSIONS = 32


class ArrayWriter:
    """Collects arrays, one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def add(self, array: np.ndarray) -> dict[str, Any]:
        """Appends the array and returns its reference: JSON of its shape and its offset in bytes."""
        reference = {"shape": write_array_shape(shape_of(array)), "offset": self._bytes}
        content = np.ascontiguousarray(array).tobytes()
        self._parts.append(content + bytes(-len(content) % ALIGNMENT))
        self._bytes += len(self._parts[-1])
        return reference

    def content(self) -> bytes:
        """The bytes of the section."""
        return b"".join(self._parts)


class ArrayReader:
    """Reads arrays from a section."""

    def __init__(self, section: memoryview) -> None:
        self._section = section

    def read(self, reference: Any) -> np.ndarray:
        """A read-only array; raises InvalidFile for a malformed reference or one outside the section."""
        if type(reference) is not dict or set(reference) != {"shape", "offset"}:
            raise InvalidFile(f"Expected shape and offset of an array. Received: {reference!r:.80}.")
        shape, offset = read_array_shape(reference["shape"]), integer(reference["offset"])
        if offset % ALIGNMENT or offset + shape.bytes > len(self._section):
            raise InvalidFile(f"Expected {shape} within {len(self._section)} bytes. Received: offset {offset}.")
        raw = np.frombuffer(self._section[offset : offset + shape.bytes], np.uint8)
        if shape.element_type == "pred" and raw.size and raw.max() > 1:
            raise InvalidFile(f"Expected bytes 0 and 1 in {shape}. Received: {int(raw.max())}.")
        return raw.view(shape.dtype).reshape(shape.dimensions)


def write_array_shape(shape: Shape) -> list[Any]:
    """A list of the element type, then the dimensions."""
    return [shape.element_type, *map(int, shape.dimensions)]


def read_array_shape(value: Any) -> Shape:
    """Reads a shape from a list; raises InvalidFile for an unknown type, or more than MOST_BYTES or MOST_DIMENSIONS."""
    if not a_list(value) or type(value[0]) is not str or value[0] not in NUMPY_TYPES:
        raise InvalidFile(f"Expected an element type and dimensions. Received: {value!r:.80}.")
    shape = Shape(value[0], integers(value[1:]))
    # A dimension of 0 hides large ones, of which strides are computed.
    space = shape.with_dimensions(tuple(max(d, 1) for d in shape.dimensions)).bytes
    if space > MOST_BYTES or shape.rank > MOST_DIMENSIONS:
        raise InvalidFile(f"Expected an array of at most {MOST_BYTES} bytes. Received: {str(shape):.80}.")
    return shape
