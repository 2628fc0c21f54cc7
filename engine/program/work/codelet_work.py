"""Work of one codelet: the class of its parameters is the kind of work, their fields are the vertices' data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from engine.codelets.language.record import Part, Record
from engine.codelets.language.scratch import ScratchSpace
from engine.program.buffer import Address
from engine.program.work.base import Work

Parameters = TypeVar("Parameters", bound=Record)


@dataclass(frozen=True, slots=True)
class CodeletWork(Work):
    """Work of a codelet with `parameters` (a Gather, ...), then `entries`: records of their tables, or plain words.

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
    def vertex(self) -> Hashable:
        """The codelet."""
        return self.codelet

    @property
    def kind(self) -> str:
        """The name of the parameters' class."""
        return type(self.parameters).__name__

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


def _flat(part: Any) -> Iterable[Any]:
    return part.flat() if isinstance(part, Record) else (part,)


def has_codelet(work: Work, *codelets: Any) -> bool:
    """Whether work runs one of these codelets."""
    return isinstance(work, CodeletWork) and work.codelet in codelets


def parameters_of(work: Work, kind: type[Parameters]) -> Parameters | None:
    """The parameters of work of a kind, which several codelets may share; None for other work."""
    return work.parameters if isinstance(work, CodeletWork) and isinstance(work.parameters, kind) else None
