"""Work of a compute set's vertices, as typed data; the host chooses codelets for it (engine.host.encode)."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

from engine.frozen import frozen
from engine.ir.shape import Shape
from engine.program.buffer import Address

MOST_UNITS = 64
"""Most units of one compute set: many more than two workers need, so that their loads are even."""


class Addressed:
    """A frozen dataclass with addresses among its fields, or in tuples of its fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses, in the order of the fields."""
        return tuple(addresses_in(tuple(_held(self).values())))

    def with_addresses(self, change: Callable[[Address], Address]) -> Self:
        """A copy with every address replaced by `change(address)`; itself if nothing changes."""
        new = {name: made for name, held in _held(self).items() if (made := _changed(held, change)) is not held}
        return replace(self, **new) if new else self


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Names of the fields whose types name Address, or a class with addresses."""
    kinds, pending = {"Address"}, [Addressed]
    while pending:
        found = pending.pop().__subclasses__()
        kinds.update(each.__name__ for each in found)
        pending += found
    fields = kind.__dataclass_fields__.items()
    return tuple(name for name, each in fields if kinds & set(re.findall(r"\w+", str(each.type))))


def _held(value: Any) -> dict[str, Any]:
    """The values of these fields."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _fields(kind)}


def addresses_in(value: Any) -> list[Address]:
    """The addresses of a field's value: an address, an object with fields, a tuple of these, or None."""
    kind: Any = type(value)
    if kind is Address:
        return [value]
    if kind is tuple:
        return [address for element in value for address in addresses_in(element)]
    return list(value.addresses) if isinstance(value, Addressed) else []


def _changed(value: Any, change: Callable[[Address], Address]) -> Any:
    """The changed value; the value itself if nothing changes."""
    kind: Any = type(value)
    if kind is Address:
        return change(value)
    if kind is tuple:
        made = tuple([_changed(element, change) for element in value])
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    return value.with_addresses(change) if isinstance(value, Addressed) else value


@frozen
class Array(Addressed):
    """A row-major array at an address."""

    address: Address
    shape: Shape


class Footprint(NamedTuple):
    """Bytes begin <= b < end from an address that all units together read, or write."""

    address: Address
    begin: int
    end: int
    writes: bool


class Work(Addressed):
    """The task of a compute set's vertices: sizes, and operands by address. Each kind is a frozen dataclass."""

    __slots__ = ()
    is_plain: ClassVar[bool] = False
    """Whether it has no effects but on its spans, and the same in every iteration of a loop."""
    reads_itself: ClassVar[bool] = False
    """Whether a part of it may read the results of another."""
    vertex_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that decide, with the kind, which code its vertices run on a chip."""

    @property
    def vertex(self) -> Hashable:
        """A key that is equal for work whose vertices run the same code on a chip."""
        return self.kind, *(getattr(self, name) for name in self.vertex_fields)

    @property
    def kind(self) -> str:
        """The name of the kind of work."""
        return type(self).__name__.removesuffix("Work")

    @property
    def unit_count(self) -> int | None:
        """Number of units, if it follows from the sizes."""
        return None

    def footprints(self) -> Iterator[Footprint]:
        """Known byte ranges that are accessed; none, unless a kind defines them."""
        return iter(())
