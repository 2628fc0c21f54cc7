"""Classes of fields that are not assigned again. They share all methods but `__init__`, for fast imports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

Kind = TypeVar("Kind", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: Kind) -> Kind:
    """Makes what `dataclass(frozen=True, slots=True)` makes, in a quarter of the time; objects, in a fifth.

    That writes and compiles six methods for each class. Type checkers refuse assignments to fields, not Python.
    """
    made: Any = dataclass(eq=False, repr=False, slots=True)(kind)
    values = _values([each.name for each in fields(made) if each.compare])
    shared = {"__eq__": _equality(values), "__hash__": lambda self: hash(values(self)), "__repr__": _text}
    for name, method in shared.items():
        if vars(kind).get(name) is None:
            setattr(made, name, method)
    return made


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Returns a function that gives an object's attributes of these names."""
    return attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, each) for each in names)


def _equality(values: Callable[[object], object]) -> Callable[[object, object], bool]:
    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _text(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
