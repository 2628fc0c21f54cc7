"""Expressions of codelets, as LLVM IR: constants are computed at translation, the rest with Numba's operators."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from llvmlite import ir
from numba.core import types

from engine.codelets.language.operations import Operations
from engine.codelets.language.values import CompileTimeValue, Method, Number, Tuple, Value
from engine.errors import InternalError

BINARY: dict[type[ast.operator], Callable[..., Any]] = {
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
}
COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
}
UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {ast.USub: operator.neg, ast.Invert: operator.invert}


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
        if isinstance(kind, types.BoundFunction):
            return Method(of, kind)
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
        return self.operation(BINARY.get(type(node.op)), node, self.visit(node.left), self.visit(node.right))

    def operation(self, function: Callable[..., Any] | None, node: ast.AST, *values: Value) -> Value:
        """The result of an operator: a constant, or computed at run time."""
        if function is None:
            self.generic_visit(node)
        if all(isinstance(each, CompileTimeValue) for each in values):
            return CompileTimeValue(function(*(each.value for each in values if isinstance(each, CompileTimeValue))))
        return self.apply(function, *values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.visit(node.operand)
        if not isinstance(node.op, ast.Not):
            return self.operation(UNARY.get(type(node.op)), node, value)
        if isinstance(value, CompileTimeValue):
            return CompileTimeValue(not value.value)
        return Number(types.boolean, self.builder.not_(self.truth(value).value))

    def visit_Compare(self, node: ast.Compare) -> Value:
        left, result = self.visit(node.left), None
        for kind, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.visit(right_node)
            one = self.operation(COMPARISONS.get(type(kind)), node, left, right)
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
        if isinstance(called, Method):
            return self.call_method(called, arguments)
        return self.call(called.value, arguments)
