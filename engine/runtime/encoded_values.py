"""Encoding of programs for files: values of a closed list of classes as JSON and arrays, without code.

Each value but integers, texts, booleans and None is an entry of a table, which refers only to earlier entries. An
object that occurs twice has one entry, and is decoded as one object.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.errors import InternalError, InvalidFile
from engine.files.arrays import ArrayReader, ArrayWriter
from engine.files.container import pack, parse, unpack
from engine.ir.shape import NUMPY_TYPES

Reference = int | str | bool | list[int] | None
Foreign = Callable[[Any], list[Any] | None]
"""Returns the JSON that refers to an object stored elsewhere; None for any other object."""
DTYPES = {dtype.name: dtype for dtype in NUMPY_TYPES.values()}


class Format:
    """Values whose objects are of these classes: dataclasses, and classes without fields."""

    def __init__(self, *classes: type) -> None:
        self.classes = {each.__name__: each for each in classes}
        assert len(self.classes) == len(classes)

    def to_bytes(self, value: Any, foreign: Foreign) -> bytes:
        """The bytes of a value. Raises InternalError for one with an object of another class."""
        writer = _Writer(self.classes, foreign)
        root = writer.reference(value)
        text = json.dumps({"root": root, "table": writer.table}, separators=(",", ":"), allow_nan=False)
        return pack({}, {"values": text.encode(), "arrays": writer.arrays.content()})

    def from_bytes(self, content: bytes, origin: str, foreign: Callable[[list[Any]], Any]) -> Any:
        """Decodes a value; `foreign` returns the objects that are stored elsewhere. Raises InvalidFile."""
        _, sections = unpack(content, origin)
        try:
            fields = parse(sections["values"], origin)
            reader = _Reader(self.classes, foreign, ArrayReader(sections["arrays"]))
            for entry in fields["table"]:
                reader.read(entry)
            return reader.value(fields["root"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InvalidFile(f"Expected an encoded program in {origin}. Received one with: {error!r:.200}") from error


class _Writer:
    def __init__(self, classes: dict[str, type], foreign: Foreign) -> None:
        self.table: list[list[Any]] = []
        self.arrays = ArrayWriter()
        self._classes, self._foreign = classes, foreign
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        """The objects that have numbers, kept alive so that no other object gets the identity of one."""

    def reference(self, value: Any) -> Reference:
        """The value itself, or a list with the number of its entry."""
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, np.integer):
            return int(value)
        if id(value) not in self._numbers:
            entry = self._entry(value)
            self._numbers[id(value)] = len(self.table)
            self._kept.append(value)
            self.table.append(entry)
        return [self._numbers[id(value)]]

    def _entry(self, value: Any) -> list[Any]:
        kind, references = type(value), self.reference
        if kind in (tuple, list):
            return [kind.__name__, *map(references, value)]
        if kind is dict:
            return ["dict", *(references(each) for pair in value.items() for each in pair)]
        if kind is float:
            return ["float", value.hex()]
        if isinstance(value, np.dtype):
            return ["dtype", value.name]
        if (home := self._foreign(value)) is not None:
            return ["foreign", home]
        if isinstance(value, np.ndarray):
            return ["array", self.arrays.add(value)]
        if self._classes.get(kind.__name__) is kind:
            return [kind.__name__, *(references(getattr(value, each)) for each in _fields(kind))]
        raise InternalError(f"Expected a value that files of objects have. Received: {kind}.")


class _Reader:
    def __init__(self, classes: dict[str, type], foreign: Callable[[list[Any]], Any], arrays: ArrayReader) -> None:
        self._classes, self._foreign, self._arrays = classes, foreign, arrays
        self._values: list[Any] = []

    def value(self, reference: Reference) -> Any:
        if type(reference) is not list:
            return reference
        (number,) = reference
        if type(number) is not int or number < 0:
            raise IndexError(number)
        return self._values[number]

    def read(self, entry: list[Any]) -> None:
        """Adds the value of the next entry."""
        self._values.append(self._value(*entry))

    def _value(self, kind: str, *rest: Any) -> Any:
        match kind:
            case "float":
                return float.fromhex(rest[0])
            case "dtype":
                return DTYPES[rest[0]]
            case "foreign":
                return self._foreign(rest[0])
            case "array":
                return self._arrays.read(rest[0]).copy()
        values = [self.value(each) for each in rest]
        match kind:
            case "tuple":
                return tuple(values)
            case "list":
                return values
            case "dict":
                return dict(zip(values[::2], values[1::2], strict=True))
        return self._classes[kind](*values)


def _fields(kind: type) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
