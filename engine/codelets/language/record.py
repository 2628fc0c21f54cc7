"""Parameter blocks as typed records: a class's fields define their indices, for kernels, and the int64 words.

    class Slice(Record):
        array: Address
        limits: Table
        count: int = 1

A kernel reads all fields by `Slice.read(parameters)`, or one by `word(parameters, Slice.LIMITS)`, where `Slice.LIMITS`
is the constant 1; `Slice.WORDS` is 3. The host creates `Slice(array=address, limits=table)` and a `block` of it. The
fields of a derived record follow those of its base, and a field whose type is a record has that record's words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

import numpy as np

from engine.codelets.language.intrinsic import Inner
from engine.codelets.language.memory import load_i64
from engine.errors import InternalError

Address = Any
"""The type of a field for an address: an int, or a relocation, which stands for an address known later."""
Table = Any
"""The type of a field for the address of a C-contiguous array, which the block keeps alive; None is 0."""


@Inner
def word(block: int, index: int) -> int:
    """Word `index` (int64) of a parameter block."""
    return load_i64(block + 8 * index)


class Numbered(type):
    """The metaclass of records: to type checkers, names in capitals are numbers of fields."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> int: ...


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record(metaclass=Numbered):
    """Int64 words of a parameter block. `Class.NAME` is the number of field `name`, from 0 on.

    Raises InternalError for missing or unknown fields.
    """

    WORDS: ClassVar[int] = 0
    _fields: ClassVar[tuple[str, ...]] = ()
    _kinds: ClassVar[tuple[Any, ...]] = ()
    """The types of fields that are records, and None for others."""

    def __init_subclass__(cls) -> None:
        scope = vars(sys.modules[cls.__module__])
        for name, annotation in cls.__dict__.get("__annotations__", {}).items():
            setattr(cls, name.upper(), cls.WORDS)
            kind = scope.get(annotation)
            record = kind if isinstance(kind, Numbered) else None
            cls.WORDS += record.WORDS if record else 1
            cls._fields, cls._kinds = (*cls._fields, name), (*cls._kinds, record)

    def __init__(self, **values: Any) -> None:
        missing = [name for name in self._fields if name not in values and not hasattr(type(self), name)]
        unknown = [name for name in values if name not in self._fields]
        if missing or unknown:
            raise InternalError(f"Expected the fields {', '.join(self._fields)}. Received: {', '.join(values)}.")
        vars(self).update(values)

    @classmethod
    def read(cls, address: int, number: int = 0) -> Self:
        """The values of record number `number` of those at an address, in a codelet."""
        raise InternalError(f"Expected {cls.__name__}.read in a codelet alone.")

    @classmethod
    def of(cls, work: Any, **others: Any) -> Self:
        """A record of `others`, and of the attributes of `work` that have the names of the remaining fields.

        Of an array it has the address, of offsets the table.
        """
        names = [name for name in cls._fields if name not in others and hasattr(work, name)]
        values = (getattr(work, name) for name in names)
        found = (getattr(each, "address", getattr(each, "table", each)) for each in values)
        return cls(**dict(zip(names, found, strict=True)), **others)

    @classmethod
    def of_each(cls, entries: Iterable[Sequence[int]]) -> list[Self]:
        """One record for each entry, whose values are in the order of the fields."""
        return [cls(**dict(zip(cls._fields, entry, strict=True))) for entry in entries]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """A copy in which `change` is applied to the value of each field."""
        return type(self)(**{name: change(getattr(self, name)) for name in self._fields})

    def _key(self) -> tuple[Any, ...]:
        return tuple(id(value) if isinstance(value, np.ndarray) else value for value in self.flat())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def flat(self) -> Iterator[Any]:
        """The values of the words, in their order; records are flattened."""
        for name in self._fields:
            value = getattr(self, name)
            yield from value.flat() if isinstance(value, Record) else (value,)


Part = Record | Sequence[Record] | Sequence[Any]
"""A part of a block: a record, records, or values of words."""


@dataclass(frozen=True, slots=True)
class ParameterBlock:
    """A parameter block: int64 `words`, (index, object) of words to relocate, (index, array) of words with tables."""

    words: np.ndarray
    relocations: tuple[tuple[int, Any], ...]
    tables: tuple[tuple[int, np.ndarray], ...]


def block(*parts: Part) -> ParameterBlock:
    """The block of records, sequences of records, and plain words, concatenated.

    Raises InternalError for a table that is not C-contiguous.
    """
    values = [value for part in parts for value in flattened(part)]
    tables: list[tuple[int, np.ndarray]] = []
    relocations: list[tuple[int, Any]] = []
    for number, value in enumerate(values):
        if isinstance(value, (int, np.integer)):
            continue
        values[number] = 0
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise InternalError(f"Expected a C-contiguous table. Received: strides of {value.strides} bytes.")
            values[number] = value.ctypes.data
            tables.append((number, value))
        elif value is not None:
            relocations.append((number, value))
    return ParameterBlock(np.array(values, np.int64), tuple(relocations), tuple(tables))


def flattened(part: Part) -> Iterator[Any]:
    """The values of a part, with records flattened."""
    for each in (part,) if isinstance(part, Record) else part:
        yield from each.flat() if isinstance(each, Record) else (each,)
