"""Work of a compute set's vertices, as typed data; it is encoded as words when an executable is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from engine.codelets.language.record import ParameterBlock
from engine.codelets.language.scratch import Range, ScratchSpace
from engine.program.buffer import Address, Buffer


class Addressed:
    """A frozen dataclass with addresses among its fields, or in tuples of its fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses, in the order of the fields."""
        return tuple(addresses_in(self))

    def with_addresses(self, change: Callable[[Address], Address]) -> Self:
        """A copy with every address replaced by `change(address)`."""
        return _changed(self, change)


_FIELDS: dict[type[Addressed], tuple[str, ...]] = {}
"""The names of the fields that may have addresses, by class."""


def _fields(kind: type[Addressed]) -> tuple[str, ...]:
    """Names of the fields whose types name Address, or a class with addresses."""
    if kind not in _FIELDS:
        kinds, pending = {"Address"}, [Addressed]
        while pending:
            found = pending.pop().__subclasses__()
            kinds.update(each.__name__ for each in found)
            pending += found
        fields = kind.__dataclass_fields__.items()
        _FIELDS[kind] = tuple(name for name, each in fields if kinds & set(re.findall(r"\w+", str(each.type))))
    return _FIELDS[kind]


def addresses_in(value: Any) -> list[Address]:
    """The addresses of a field's value: an address, an object with fields, a tuple of these, or None."""
    if type(value) is Address:
        return [value]
    if type(value) is tuple:
        return [address for element in value for address in addresses_in(element)]
    if isinstance(value, Addressed):
        return [address for name in _fields(type(value)) for address in addresses_in(getattr(value, name))]
    return []


def _changed(value: Any, change: Callable[[Address], Address]) -> Any:
    """The changed value; the value itself if nothing changes."""
    if type(value) is Address:
        return change(value)
    if type(value) is tuple:
        made = tuple([_changed(element, change) for element in value])
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    if isinstance(value, Addressed):
        old = {name: getattr(value, name) for name in _fields(type(value))}
        new = {name: made for name, held in old.items() if (made := _changed(held, change)) is not held}
        return replace(value, **new) if new else value
    return value


@dataclass(frozen=True, slots=True)
class Relocation(Addressed):
    """An address that is written to word number `word` of the parameter block."""

    word: int
    address: Address


@dataclass(frozen=True, slots=True)
class Encoded:
    """A codelet and its parameter block, int64 [words], which the caller owns and relocates.

    `tables` pairs words with the arrays whose addresses they hold, `calls` words with the codelets that this one calls.
    `scratch_bytes` is the space each worker needs besides the executor's own; `scratch_gaps` are ranges of it that are
    not accessed. `generation` is a word with a number, which the host raises where others may have written a large
    variable that this work writes.
    """

    codelet: Any
    words: np.ndarray
    relocations: tuple[Relocation, ...]
    scratch_bytes: int = 0
    tables: tuple[tuple[int, np.ndarray], ...] = ()
    calls: tuple[tuple[int, Any], ...] = ()
    generation: int | None = None
    scratch_gaps: tuple[Range, ...] = ()

    @classmethod
    def of(
        cls,
        codelet: Any,
        block: ParameterBlock,
        scratch: int | ScratchSpace = 0,
        calls: tuple[tuple[int, Any], ...] = (),
    ) -> Self:
        """Encodes a block of records, whose relocations are addresses; `scratch` is space, or its bytes."""
        relocations = tuple(Relocation(word, address) for word, address in block.relocations)
        space = ScratchSpace.of(scratch)
        return cls(codelet, block.words, relocations, space.bytes, block.tables, calls, scratch_gaps=space.gaps)

    @property
    def scratch(self) -> ScratchSpace:
        """The bytes of scratch and their gaps."""
        return ScratchSpace(self.scratch_bytes, self.scratch_gaps)

    def parts(self, private: Container[Buffer] = ()) -> list[Any]:
        """Words and tables of the block as a part of another: relocated words are addresses, except in `private`
        buffers.
        """
        found: list[Any] = self.words.tolist()
        for word, table in self.tables:
            found[word] = table
        for relocation in self.relocations:
            if relocation.address.buffer not in private:
                found[relocation.word] = relocation.address
        return found

    def words_of(self, buffer: Buffer) -> list[int]:
        """The indices of the words that get addresses in a buffer."""
        return [each.word for each in self.relocations if each.address.buffer is buffer]


class Footprint(NamedTuple):
    """Bytes begin <= b < end from an address that all units together read, or write."""

    address: Address
    begin: int
    end: int
    writes: bool


class Work(Addressed):
    """The task of a compute set's vertices: sizes, and operands by address. Each kind is a frozen dataclass."""

    __slots__ = ()

    @property
    def vertex(self) -> Hashable:
        """A key that is equal for work whose vertices run the same code on a chip."""
        return self.kind

    @property
    def kind(self) -> str:
        """The name of the kind of work."""
        return type(self).__name__

    @property
    def unit_count(self) -> int | None:
        """Number of units, if it follows from the sizes."""
        return None

    def footprints(self) -> Iterator[Footprint]:
        """Known byte ranges that are accessed; none, unless a kind defines them."""
        return iter(())

    def encode(self) -> Encoded:
        """The codelet and a parameter block of its own, with zeros for addresses of buffers."""
        raise NotImplementedError
