"""Work of a codelet whose parameter block consists of records, with named fields that define its vertices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from engine.codelets.record import Part, Record, block
from engine.program.buffer import Address
from engine.program.work.base import Encoded, Work


@dataclass(frozen=True, slots=True)
class Records(Work):
    """The record `head`, then the rest of the block: records and plain words. Their addresses are Address.

    `calls` are codelets that this one calls, with the words that have their addresses.
    """

    codelet: Any
    head: Any
    rest: tuple[Record | int | Address, ...] = ()
    scratch_bytes: int = 0
    calls: tuple[tuple[int, Any], ...] = ()

    @classmethod
    def of(cls, codelet: Any, parts: Iterable[Part], **named: Any) -> Self:
        """Builds work from the parts of a block, of which the first is a record."""
        head, *rest = parts
        flat = [each for part in rest for each in ((part,) if isinstance(part, Record) else part)]
        return cls(codelet, head, tuple(flat), **named)

    @property
    def vertex(self) -> Hashable:
        """The codelet."""
        return self.codelet

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses, in the order of their words."""
        return tuple(value for value in (*self.head.flat(), *_flat(self.rest)) if isinstance(value, Address))

    def with_addresses(self, change: Callable[[Address], Address]) -> Self:
        """A copy with every address replaced by what `change` returns for it."""

        def changed(value: Any) -> Any:
            if isinstance(value, Record):
                return value.mapped(changed)
            return change(value) if isinstance(value, Address) else value

        return replace(self, head=changed(self.head), rest=tuple(changed(each) for each in self.rest))

    def encode(self) -> Encoded:
        """The block of the records."""
        return Encoded.of(self.codelet, block(self.head, self.rest), self.scratch_bytes, self.calls)


def _flat(parts: Iterable[Any]) -> Iterable[Any]:
    for each in parts:
        yield from each.flat() if isinstance(each, Record) else (each,)


def has_codelet(work: Work, *codelets: Any) -> bool:
    """Whether work runs one of these codelets."""
    return isinstance(work, Records) and work.codelet in codelets
