"""Expressions of codelets, as LLVM IR: constants are computed at translation, the rest with Numba's operators."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.codelets.language.intrinsic import Inner, Intrinsic
from engine.codelets.language.memory import loaded_i64
from engine.codelets.language.record import Record
from engine.codelets.language.translation import Translation, is_plain
from engine.codelets.language.values import (
    NOTHING,
    CompileTimeValue,
    Number,
    Tuple,
    TupleForm,
    Value,
    form_of,
    leaves,
    rebuilt,
)
from engine.errors import InternalError

FIRST = CompileTimeValue(0)
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
        cast = [self.cast(each, kind) for each, kind in zip(numbers, signature.args, strict=True)]
        return self._result(signature, implementation(self.builder, cast))

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

    def call(self, function: Any, arguments: list[Value]) -> Value:
        """Calls another function of codelets, an intrinsic, a type of tuples, or a function that Numba implements."""
        record = getattr(function, "__self__", None)
        if isinstance(record, type) and issubclass(record, Record):
            return self._read(record, *arguments)
        if isinstance(function, Inner):
            return self._inner(function.function, arguments)
        if isinstance(function, Intrinsic):
            return self._intrinsic(function, arguments)
        if isinstance(function, type) and issubclass(function, tuple):
            return Tuple(tuple(arguments), function)
        if function in ORDERS:
            return reduce(partial(self._first, ORDERS[function]), arguments)
        return self.apply(function, *arguments)

    def _read(self, record: type[Record], table: Value, number: Value = FIRST) -> Tuple:
        """Loads the fields of a record of a table, all of them: LLVM removes loads whose results are not used."""
        offset = self.apply(operator.mul, number, CompileTimeValue(8 * record.WORDS))
        address = self.number(self.apply(operator.add, table, offset)).value
        return self._loaded(record, address)

    def _loaded(self, record: type[Record], address: ir.Value) -> Tuple:
        values: list[Value] = []
        for name, kind in zip(record._fields, record._kinds, strict=True):
            at = self.builder.add(address, ir.Constant(address.type, 8 * getattr(record, name.upper())))
            values.append(self._loaded(kind, at) if kind else Number(types.int64, loaded_i64(self.builder, at)))
        return Tuple(tuple(values), record)

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


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


class Expressions(Operations, ast.NodeVisitor):
    """Translates expressions: a visit writes IR at the builder's position, and returns a Value."""

    def generic_visit(self, node: ast.AST) -> NoReturn:
        raise InternalError(
            "Expected a codelet to use numbers, tuples, for over range, while and if alone. "
            f"Received: {ast.unparse(node)}."
        )

    # Names, literals, tuples

    def visit_Constant(self, node: ast.Constant) -> Value:
        return CompileTimeValue(node.value)

    def visit_Name(self, node: ast.Name) -> Value:
        if node.id in self.bound:
            return self.load(node.id)
        return CompileTimeValue(self.outer[node.id]) if node.id in self.outer else self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> Value:
        return Tuple(tuple(self.arguments(node.elts)))

    def arguments(self, nodes: list[ast.expr]) -> list[Value]:
        """The values of expressions; starred ones are tuples, and replaced by their items."""
        found: list[Value] = []
        for node in nodes:
            found += self.items(self.visit(node.value)) if isinstance(node, ast.Starred) else [self.visit(node)]
        return found

    def items(self, value: Value) -> tuple[Value, ...]:
        """The items of a tuple."""
        if isinstance(value, CompileTimeValue):
            return tuple(CompileTimeValue(each) for each in value.value)
        assert isinstance(value, Tuple)
        return value.items

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        of = self.visit(node.value)
        if isinstance(of, CompileTimeValue):
            return CompileTimeValue(getattr(of.value, node.attr))
        if isinstance(of, Tuple) and of.kind is not None:
            return of.items[of.kind._fields.index(node.attr)]  # type: ignore[attr-defined]
        kind = self.translation.typing.resolve_getattr(of.type, node.attr)
        read = self.translation.context.get_getattr(of.type, node.attr)
        return Number(kind, read(self.translation.context, self.builder, of.type, of.value, node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        of, index = self.visit(node.value), self.visit(node.slice)
        if isinstance(index, CompileTimeValue) and isinstance(of, CompileTimeValue | Tuple):
            return (
                CompileTimeValue(of.value[index.value]) if isinstance(of, CompileTimeValue) else of.items[index.value]
            )
        return self.apply(operator.getitem, of, index)

    # Operators

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        return self.operation(node.op, node, self.visit(node.left), self.visit(node.right))

    def operation(self, kind: ast.AST, node: ast.AST, *values: Value) -> Value:
        """The result of an operator: a constant, or computed at run time."""
        function = OPERATORS.get(type(kind)) or self.generic_visit(node)
        if all(isinstance(each, CompileTimeValue) for each in values):
            return CompileTimeValue(function(*(each.value for each in values if isinstance(each, CompileTimeValue))))
        return self.apply(function, *values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.visit(node.operand)
        if not isinstance(node.op, ast.Not):
            return self.operation(node.op, node, value)
        if isinstance(value, CompileTimeValue):
            return CompileTimeValue(not value.value)
        return Number(types.boolean, self.builder.not_(self.truth(value).value))

    def visit_Compare(self, node: ast.Compare) -> Value:
        left, result = self.visit(node.left), None
        for kind, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.visit(right_node)
            one = self.operation(kind, node, left, right)
            result = one if result is None else self._both(result, one)
            left = right
        assert result is not None
        return result

    def _both(self, a: Value, b: Value) -> Value:
        return Number(types.boolean, self.builder.and_(self.truth(a).value, self.truth(b).value))

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        yes, no = (Number(types.boolean, ir.IntType(1)(value)) for value in (True, False))
        constants = [self.visit(each) for each in node.values if self.known(each) is not None]
        if not all(
            isinstance(each, CompileTimeValue) and isinstance(each.value, bool | np.bool_) for each in constants
        ):
            self.generic_visit(node)
        known = self.known(node)
        return self._chosen(node, node, lambda: yes, lambda: no) if known is None else CompileTimeValue(known)

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        known = self.known(node.test)
        if known is not None:
            return self.visit(node.body if known else node.orelse)
        return self._chosen(node, node.test, lambda: self.visit(node.body), lambda: self.visit(node.orelse))

    def _chosen(self, node: ast.expr, test: ast.expr, *values: Callable[[], Value]) -> Value:
        """Emits the choice of one of two values, which is kept in its own variable."""
        name = f"{type(node).__name__}.{node.lineno}.{node.col_offset}"
        yes, no, chosen = (self.builder.append_basic_block(each) for each in ("yes", "no", "chosen"))
        self.branch(test, yes, no, isinstance(node, ast.BoolOp))
        for block, value in zip((yes, no), values, strict=True):
            self.builder.position_at_end(block)
            self.assign(name, value())
            self.builder.branch(chosen)
        self.builder.position_at_end(chosen)
        return self.load(name)

    # Conditions

    def known(self, test: ast.expr) -> bool | None:
        """Whether a condition is true, if that is known without its variables; it then writes no IR."""
        if isinstance(test, ast.BoolOp):
            found = [self.known(each) for each in test.values]
            decisive = isinstance(test.op, ast.Or)
            return decisive if decisive in found else None if None in found else not decisive
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inside = self.known(test.operand)
            return None if inside is None else not inside
        names = [each.id for each in ast.walk(test) if isinstance(each, ast.Name)]
        if any(isinstance(each, ast.Call) for each in ast.walk(test)) or not all(map(self._is_constant, names)):
            return None
        value = self.visit(test)
        return bool(value.value) if isinstance(value, CompileTimeValue) else None

    def _is_constant(self, name: str) -> bool:
        return isinstance(self.bound[name], CompileTimeValue) if name in self.bound else name in self.outer

    def branch(self, test: ast.expr, yes: ir.Block, no: ir.Block, is_value: bool = False) -> None:
        """Ends the block; continues at `yes` if the condition is true, else at `no`. With `is_value` it is boolean."""
        known = self.known(test)
        if known is not None:
            self.builder.branch(yes if known else no)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.branch(test.operand, no, yes)
        elif isinstance(test, ast.BoolOp):
            all_of = isinstance(test.op, ast.And)
            for each in test.values[:-1]:
                rest = self.builder.append_basic_block("rest")
                self.branch(each, rest if all_of else yes, no if all_of else rest, is_value)
                self.builder.position_at_end(rest)
            self.branch(test.values[-1], yes, no, is_value)
        else:
            value = self.visit(test)
            if is_value and isinstance(value, Number) and value.type != types.boolean:
                self.generic_visit(test)
            self.builder.cbranch(self.truth(value).value, yes, no)

    # Calls

    def visit_Call(self, node: ast.Call) -> Value:
        called, arguments = self.visit(node.func), self.arguments(node.args)
        if node.keywords or isinstance(called, Number | Tuple):
            self.generic_visit(node)
        return self.call(called.value, arguments)
