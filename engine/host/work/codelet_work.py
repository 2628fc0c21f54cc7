"""Work of one codelet, with the records of its parameter block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from engine.codelets.language.record import Part, Record, block
from engine.codelets.language.scratch import ScratchSpace
from engine.host.encoded import Encoded, HostWork
from engine.program.buffer import Address


@dataclass(frozen=True, slots=True)
class CodeletWork(HostWork):
    """Work of a codelet with `parameters` (a PooledImages, ...), then `entries`: records of their tables, or words.

    Addresses are Address objects. `scratch` is space, or its bytes. `calls` pairs words with the codelets that this one
    calls, whose addresses they hold.
    """

    codelet: Any
    parameters: Record
    entries: tuple[Record | int | Address, ...] = ()
    scratch: int | ScratchSpace = 0
    calls: tuple[tuple[int, Any], ...] = ()

    @classmethod
    def of(cls, codelet: Any, parts: Iterable[Part], **named: Any) -> Self:
        """Builds work from the parts of a block, of which the first is a record."""
        first, *rest = parts
        assert isinstance(first, Record)
        flat = [each for part in rest for each in ((part,) if isinstance(part, Record) else part)]
        return cls(codelet, first, tuple(flat), **named)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses, in the order of their words."""
        values = [value for part in (self.parameters, *self.entries) for value in _flat(part)]
        return tuple(value for value in values if isinstance(value, Address))

    def with_addresses(self, change: Callable[[Address], Address]) -> Self:
        """A copy with every address replaced by `change(address)`."""

        def changed(value: Any) -> Any:
            if isinstance(value, Record):
                return value.mapped(changed)
            return change(value) if isinstance(value, Address) else value

        return replace(self, parameters=changed(self.parameters), entries=tuple(map(changed, self.entries)))

    def encode(self) -> Encoded:
        """The block of the records."""
        return Encoded.of(self.codelet, block(self.parameters, self.entries), self.scratch, self.calls)


def _flat(part: Any) -> Iterable[Any]:
    return part.flat() if isinstance(part, Record) else (part,)
