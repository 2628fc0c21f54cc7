"""Values in a codelet that is being translated: known at once, computed at run time, or tuples of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir


@dataclass(frozen=True, slots=True, eq=False)
class CompileTimeValue:
    """A value known at compile time: a global, a value of the closure, a literal, or one computed from these."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompileTimeValue) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Number(NamedTuple):
    """A value of a Numba type: a number, a pointer or an array."""

    type: Any
    value: ir.Value


class Tuple(NamedTuple):
    """A tuple, named or not, of which only the items exist at run time."""

    items: tuple[Any, ...]
    kind: type | None = None


Value = CompileTimeValue | Number | Tuple


class TupleForm(NamedTuple):
    """The forms of a tuple's items."""

    items: tuple[Any, ...]
    kind: type | None


Form = Any
"""The part of a value that is known before run time: a number's type, a TupleForm, or the Constant itself."""
NOTHING = CompileTimeValue(None)


def form_of(value: Value) -> Form:
    """The form of a value."""
    if isinstance(value, Tuple):
        return TupleForm(tuple(form_of(each) for each in value.items), value.kind)
    return value.type if isinstance(value, Number) else value


def leaves(value: Value) -> Iterator[Number]:
    """The numbers of a value, which are passed at run time."""
    if isinstance(value, Tuple):
        for each in value.items:
            yield from leaves(each)
    elif isinstance(value, Number):
        yield value


def types_of(form: Form) -> Iterator[Any]:
    """The types of the numbers of a value of this form."""
    if isinstance(form, TupleForm):
        for each in form.items:
            yield from types_of(each)
    elif not isinstance(form, CompileTimeValue):
        yield form


def rebuilt(form: Form, numbers: Iterator[ir.Value]) -> Value:
    """Builds the value of this form from its numbers."""
    if isinstance(form, TupleForm):
        return Tuple(tuple(rebuilt(each, numbers) for each in form.items), form.kind)
    return form if isinstance(form, CompileTimeValue) else Number(form, next(numbers))
