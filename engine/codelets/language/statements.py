"""Functions of codelets, as LLVM IR: assignments, conditions and loops, from top to bottom.

Translates a codelet's function to unoptimised LLVM IR, in one pass over its source.

Numba's own frontend solves for the types of all variables of a function's bytecode, which takes five times as long, and
lets each function return a status, which LLVM then has to remove. Vertices of users, which may be any function that
Numba compiles, go that way: see frontend.py.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from textwrap import dedent
from typing import Any

from llvmlite import ir
from numba.core import cgutils, target_extension, types
from numba.core.compiler_lock import global_compiler_lock

from engine.codelets.language.expressions import Expressions
from engine.codelets.language.frontend import NAME
from engine.codelets.language.translation import Translation, Written, is_plain
from engine.codelets.language.values import (
    NOTHING,
    CompileTimeValue,
    Form,
    Number,
    Tuple,
    TupleForm,
    Value,
    form_of,
    leaves,
    rebuilt,
    types_of,
)
from engine.errors import InternalError
from engine.garbage import collector_paused
from engine.machine_code.abi import ARGUMENTS


@cache
def definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """The statement that defines a function. Raises InternalError without its source."""
    code, node = function.__code__, None
    with suppress(OSError, SyntaxError):
        (node,) = ast.parse(dedent(inspect.getsource(function))).body
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        raise InternalError(
            f"Expected a codelet whose source is in a file. Received: {code.co_name} of {code.co_filename}."
        )
    return node


def outer_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Values of the closure, the globals and the built-in functions that a function names."""
    outer = inspect.getclosurevars(function)
    return {**outer.builtins, **outer.globals, **outer.nonlocals}


RESULTS = {"int": types.int64, "bool": types.boolean, "None": NOTHING}
"""Forms of results by annotation; without one the first result decides."""


class Widened(Exception):
    """Signals that a variable or the result needs a wider type than the IR written so far has."""


def write_function(translation: Translation, function: Callable[..., Any], forms: tuple[Form, ...]) -> Written:
    """Writes the LLVM function for arguments of these forms; returns it and the form of its result."""
    writer = FunctionWriter(translation, function, forms)
    while True:
        written = writer.begin()
        try:
            writer.write(written)
            if writer.has_loops and translation.in_vectors:
                written.attributes.add("noinline")
            return written, writer.result
        except Widened:
            translation.forget(written)


class FunctionWriter(Expressions):
    """Writes one function.

    A variable is in memory, which LLVM's passes replace by registers, and has one type in the whole function. If a
    later value needs a wider one, the function is written again.
    """

    def __init__(self, translation: Translation, function: Callable[..., Any], forms: tuple[Form, ...]) -> None:
        super().__init__(translation, outer_names(function))
        self.node, self.forms = definition(function), forms
        self.types: dict[str, Any] = {}
        self.slots: dict[str, ir.Value] = {}
        self.loops: list[tuple[ir.Block, ir.Block]] = []
        """Blocks of each enclosing loop: the block of its next iteration, and the block after the loop."""
        self.has_loops = False
        self.result: Form = None if self.node.returns is None else RESULTS.get(ast.unparse(self.node.returns))

    def begin(self) -> ir.Function:
        """Declares the empty function."""
        context = self.translation.context
        arguments = [context.get_value_type(each) for form in self.forms for each in types_of(form)]
        results = [context.get_value_type(each) for each in types_of(self.result or NOTHING)]
        result = results[0] if len(results) == 1 else ir.LiteralStructType(results) if results else ir.VoidType()
        return self.translation.declare(self.node.name, ir.FunctionType(result, arguments))

    def write(self, function: ir.Function) -> None:
        """Writes the body. Raises Widened where that needs other types."""
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.bound, self.slots, self.loops = {}, {}, []
        values = iter(function.args)
        for argument, form in zip(self.node.args.args, self.forms, strict=True):
            self.assign(argument.arg, rebuilt(form, values))
        self.statements(self.node.body)
        if not self.builder.block.is_terminated:
            self.end(NOTHING)

    # Variables

    def assign(self, name: str, value: Value) -> None:
        if name in self.bound and _fixed(self.bound[name]) != _fixed(value):
            raise InternalError(
                f"Expected a variable to keep one constant, or tuples of one length. Received: a second assignment of "
                f"another kind to {name}. Use another name."
            )
        if isinstance(value, Tuple):
            for number, each in enumerate(value.items):
                self.assign(f"{name}.{number}", each)
            forms = tuple(self.bound[f"{name}.{number}"] for number in range(len(value.items)))
            self.bound[name] = TupleForm(forms, value.kind)
        elif isinstance(value, CompileTimeValue) and not is_plain(value):
            self.bound[name] = value
        else:
            given = self.number(value)
            known = self.types.setdefault(name, given.type)
            wider = self.translation.unified(known, given.type)
            if wider != known:
                self.types[name] = wider
                raise Widened
            if name not in self.slots:
                kind = self.translation.context.get_value_type(known)
                self.slots[name] = cgutils.alloca_once(self.builder, kind, name=name)
            self.bound[name] = known
            self.builder.store(self.cast(given, known), self.slots[name])

    def load(self, name: str) -> Value:
        form = self.bound[name]
        if isinstance(form, TupleForm):
            return Tuple(tuple(self.load(f"{name}.{number}") for number in range(len(form.items))), form.kind)
        if isinstance(form, CompileTimeValue):
            return form
        return Number(form, self.builder.load(self.slots[name]))

    def store(self, target: ast.expr, value: Value) -> None:
        """Assigns to a variable, an element, or a tuple of them."""
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            for each, item in zip(target.elts, self.items(value), strict=True):
                self.store(each, item)
        elif isinstance(target, ast.Subscript):
            self.apply(operator.setitem, self.visit(target.value), self.visit(target.slice), value)
        else:
            self.generic_visit(target)

    # Statements

    def statements(self, nodes: list[ast.stmt]) -> None:
        """Writes statements up to the first one that is never reached."""
        for node in nodes:
            if self.builder.block.is_terminated:
                return
            self.visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self.store(target, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        before, by = self.visit(node.target), self.visit(node.value)
        self.store(node.target, self.operation(node.op, node, before, by))

    def visit_Return(self, node: ast.Return) -> None:
        self.end(NOTHING if node.value is None else self.visit(node.value))

    def end(self, value: Value) -> None:
        """Returns a value. Raises Widened if the function's result is of another form."""
        value = self.passed(value)
        form = form_of(value) if self.result is None else self._joined(self.result, form_of(value))
        if form != self.result:
            self.result = form
            raise Widened
        numbers = [self.cast(each, kind) for each, kind in zip(leaves(value), types_of(form), strict=True)]
        if not numbers:
            self.builder.ret_void()
        elif len(numbers) == 1:
            self.builder.ret(numbers[0])
        else:
            result: ir.Value = ir.Constant(self.builder.function.ftype.return_type, ir.Undefined)
            for k, each in enumerate(numbers):
                result = self.builder.insert_value(result, each, k)
            self.builder.ret(result)

    def _joined(self, a: Form, b: Form) -> Form:
        """The form that holds values of both. Raises InternalError if there is none."""
        if a == b:
            return b
        if _fixed(a) != _fixed(b) or isinstance(a, CompileTimeValue):
            raise InternalError(f"Expected all returns of {self.node.name} to give one type. Received: {a} and {b}.")
        if isinstance(a, TupleForm):
            return TupleForm(tuple(map(self._joined, a.items, b.items)), b.kind)
        return self.translation.unified(a, b)

    def visit_If(self, node: ast.If) -> None:
        known = self.known(node.test)
        if known is not None:
            self.statements(node.body if known else node.orelse)
            return
        yes, no, end = (self.builder.append_basic_block(each) for each in ("then", "else", "endif"))
        self.branch(node.test, yes, no)
        reached = False
        for block, body in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(block)
            self.statements(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(end)
                reached = True
        self.builder.position_at_end(end)
        if not reached:
            self.builder.unreachable()

    # Loops

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            self.generic_visit(node)
        is_endless = self.known(node.test)
        head = self.builder.append_basic_block("head")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        body, end = self.builder.append_basic_block("body"), self.builder.append_basic_block("end")
        self.branch(node.test, body, end)
        self._iterate(node, body, head, end)
        if is_endless and not any(end in b.terminator.operands for b in end.function.blocks if b.is_terminated):
            self.builder.unreachable()

    def visit_For(self, node: ast.For) -> None:
        called = node.iter
        if not isinstance(called, ast.Call) or not isinstance(node.target, ast.Name) or node.orelse:
            self.generic_visit(node)
        if self.visit(called.func) != CompileTimeValue(range):
            self.generic_visit(node)
        given = self.arguments(called.args)
        start, stop, step = self._limits(given)
        counter = cgutils.alloca_once(self.builder, start.type, name="counter")
        self.builder.store(start, counter)
        head, body, following, end = map(self.builder.append_basic_block, ("for", "body", "next", "end"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        index = self.builder.load(counter)
        self.builder.cbranch(self._continues(index, stop, step), body, end)
        self.builder.position_at_end(body)
        self.assign(node.target.id, Number(types.int64, index))
        self._iterate(node, self.builder.block, following, end)
        self.builder.position_at_end(following)
        self.builder.store(self.builder.add(self.builder.load(counter), step, flags=("nsw",)), counter)
        self.builder.branch(head)
        self.builder.position_at_end(end)

    def _limits(self, given: list[Value]) -> list[ir.Value]:
        """Start, stop and step of a range."""
        values = [CompileTimeValue(0), *given] if len(given) == 1 else given
        return [self.cast(self.number(each), types.int64) for each in (*values, CompileTimeValue(1))[:3]]

    def _continues(self, index: ir.Value, stop: ir.Value, step: ir.Value) -> ir.Value:
        """Whether a range has this index."""
        up = self.builder.icmp_signed("<", index, stop)
        if isinstance(step, ir.Constant) and step.constant > 0:
            return up
        down, zero = self.builder.icmp_signed(">", index, stop), step.type(0)
        rises, falls = (self.builder.icmp_signed(each, step, zero) for each in "><")
        return self.builder.or_(self.builder.and_(rises, up), self.builder.and_(falls, down))

    def _iterate(self, node: ast.While | ast.For, body: ir.Block, following: ir.Block, end: ir.Block) -> None:
        """Writes the body of a loop, and leaves the builder behind the loop."""
        self.builder.position_at_end(body)
        self.has_loops = True
        self.loops.append((following, end))
        self.statements(node.body)
        self.loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(following)
        self.builder.position_at_end(end)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])

    def visit_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])


def _fixed(value: Value | Form) -> Any:
    """The part of a variable's value that is known before run time, and so must be the same on all paths."""
    if isinstance(value, Tuple | TupleForm):
        return len(value.items), value.kind
    return value if isinstance(value, CompileTimeValue) and not is_plain(value) else None


def ir_of(function: Callable[..., None], in_vectors: bool = False) -> tuple[list[str], str]:
    """LLVM IR of a codelet and of all its callees, as texts of modules; and the name of its function in the first.

    Raises InternalError for a function that is not in the language of codelets.
    """
    with global_compiler_lock, target_extension.target_override(NAME), collector_paused():
        translation = Translation(write_function, in_vectors)
        with translation.context.push_code_library(translation.library):
            written, _ = translation.function(function, (types.int64,) * ARGUMENTS)
            translation.context.post_lowering(translation.module, translation.library)
        translation.library.add_ir_module(translation.module)
        return translation.library.all_texts(), written.name
