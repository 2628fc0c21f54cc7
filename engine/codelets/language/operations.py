"""Operations of codelets on values, as LLVM IR: numbers with Numba's types and operators, and calls."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.codelets.language.intrinsic import Inner, Intrinsic
from engine.codelets.language.translation import Translation, is_plain
from engine.codelets.language.values import (
    NOTHING,
    CompileTimeValue,
    Method,
    Number,
    Tuple,
    TupleForm,
    Value,
    form_of,
    leaves,
    rebuilt,
)
from engine.errors import InternalError

ORDERS: dict[Any, Callable[..., Any]] = {min: operator.lt, max: operator.gt}


class Operations(ABC):
    """Operations that write IR at the builder's position, and return a Value."""

    def __init__(self, translation: Translation, outer: dict[str, Any]) -> None:
        self.translation, self.outer = translation, outer
        self.builder: ir.IRBuilder
        self.bound: dict[str, Any] = {}
        """The forms of local variables."""

    @abstractmethod
    def load(self, name: str) -> Value:
        """The value of a local variable."""

    @abstractmethod
    def assign(self, name: str, value: Value) -> None:
        """Assigns to a local variable, and widens its type to one that has all of its values."""

    def number(self, value: Value) -> Number:
        """A value as one number of a Numba type; a tuple becomes one of Numba's."""
        context = self.translation.context
        if isinstance(value, Number):
            return value
        if isinstance(value, Tuple):
            items = [self.number(each) for each in value.items]
            kind = types.Tuple.from_types([each.type for each in items])
            return Number(kind, context.make_tuple(self.builder, kind, [each.value for each in items]))
        assert isinstance(value, CompileTimeValue)
        plain = int(value.value) if isinstance(value.value, IntEnum) else value.value
        kind = types.none if plain is None else self.translation.typing.resolve_value_type(plain)
        return Number(kind, context.get_constant_generic(self.builder, kind, plain))

    def apply(self, function: Any, *values: Value) -> Value:
        """Calls an operator or function that Numba implements."""
        numbers = [self.number(each) for each in values]
        signature, implementation = self.translation.implementation(function, tuple(each.type for each in numbers))
        return self._called(signature, implementation, numbers)

    def _called(self, signature: Any, implementation: Any, numbers: list[Number], of: Number | None = None) -> Value:
        """Calls code that Numba implements, on numbers; a method gets the object `of` first."""
        cast = [self.cast(each, kind) for each, kind in zip(numbers, signature.args, strict=True)]
        return self._result(signature, implementation(self.builder, cast if of is None else [of.value, *cast]))

    def _result(self, signature: Any, result: ir.Value) -> Value:
        """Wraps a result of Numba's; a tuple becomes its items."""
        kind = signature.return_type
        if not isinstance(kind, types.BaseTuple):
            return NOTHING if kind == types.none else Number(kind, result)
        items = (self.builder.extract_value(result, k) for k in range(len(kind)))
        return Tuple(tuple(map(Number, kind, items)))

    def cast(self, number: Number, kind: Any) -> ir.Value:
        """The number's value in another type."""
        return self.translation.context.cast(self.builder, number.value, number.type, kind)

    def truth(self, value: Value) -> Number:
        """Whether a value is true, as a boolean."""
        each = self.number(value)
        return Number(types.boolean, self.translation.context.is_true(self.builder, each.type, each.value))

    def call_method(self, method: Method, arguments: list[Value]) -> Value:
        """Calls a method that Numba implements."""
        numbers = [self.number(each) for each in arguments]
        signature, code = self.translation.method(method.type, tuple(each.type for each in numbers))
        return self._called(signature, code, numbers, method.of)

    def call(self, function: Any, arguments: list[Value]) -> Value:
        """Calls another function of codelets, an intrinsic, a type of tuples, or a function that Numba implements."""
        if isinstance(function, Inner):
            return self._inner(function.function, arguments)
        if isinstance(function, Intrinsic):
            return self._intrinsic(function, arguments)
        if isinstance(function, type) and issubclass(function, tuple):
            return Tuple(tuple(arguments), function)
        if function in ORDERS:
            return reduce(partial(self._first, ORDERS[function]), arguments)
        return self.apply(function, *arguments)

    def _first(self, order: Callable[..., Any], a: Value, b: Value) -> Value:
        """Emits the lesser or greater of two integers, the one that comes first by `order`."""
        if isinstance(a, CompileTimeValue) and isinstance(b, CompileTimeValue):
            return b if order(b.value, a.value) else a
        one, other = self.number(a), self.number(b)
        kind = self.translation.unified(one.type, other.type)
        if not isinstance(kind, types.Integer):
            raise InternalError(f"Expected integers in min and max. Received: {kind}.")
        one, other = (Number(kind, self.cast(each, kind)) for each in (one, other))
        comes_first = self.truth(self.apply(order, other, one)).value
        return Number(kind, self.builder.select(comes_first, other.value, one.value))

    def _inner(self, function: Callable[..., Any], arguments: list[Value]) -> Value:
        passed = [self.passed(each) for each in arguments]
        written, form = self.translation.function(function, tuple(form_of(each) for each in passed))
        result = self.builder.call(written, [number.value for each in passed for number in leaves(each)])
        if not isinstance(result.type, ir.LiteralStructType) or not isinstance(form, TupleForm):
            return rebuilt(form, iter([result]))
        return rebuilt(form, (self.builder.extract_value(result, k) for k in range(len(result.type.elements))))

    def passed(self, value: Value) -> Value:
        """An argument or result; a constant number is passed like others, as LLVM sees it when inlining."""
        if isinstance(value, Tuple):
            return value._replace(items=tuple(self.passed(each) for each in value.items))
        return self.number(value) if is_plain(value) else value

    def _intrinsic(self, function: Intrinsic, arguments: list[Value]) -> Value:
        numbers = [self._literal(each) for each in arguments]
        signature, emit = self.translation.intrinsic(function, tuple(each.type for each in numbers))
        values = [
            each.value if isinstance(each.type, types.StringLiteral) else self.cast(each, kind)
            for each, kind in zip(numbers, signature.args, strict=True)
        ]
        return self._result(signature, emit(self.translation.context, self.builder, signature, tuple(values)))

    def _literal(self, value: Value) -> Number:
        """An argument of an intrinsic; a text becomes a literal type of Numba's."""
        if isinstance(value, CompileTimeValue) and isinstance(value.value, str):
            return Number(types.StringLiteral(value.value), None)
        return self.number(value)
