"""What a program says: dotted names in full, calls, and options of configurations, with their lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

CONFIGURATIONS = ("IPUConfig", "IpuOptions", "create_ipu_config")
"""Last parts of the names whose result is a configuration; so is that of setters that get one."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"})


@dataclass(frozen=True)
class Use:
    """A name that is imported or used: all the names it may have in full, and whether the program goes on without."""

    line: int
    names: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True)
class Call:
    """A call of `names`, or of a method of something unknown, with the arguments it gives by name."""

    line: int
    names: tuple[str, ...]
    method: str | None
    keywords: dict[str, ast.expr]
    has_double_star: bool


@dataclass(frozen=True)
class OptionSet:
    """An assignment to an option of a configuration."""

    line: int
    option: str
    value: ast.expr


@dataclass
class Program:
    """Everything that the checks need of one program."""

    uses: list[Use] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    options: list[OptionSet] = field(default_factory=list)


def read(source: str | bytes) -> Program:
    """The program of a Python file; raises SyntaxError."""
    reader = _Reader(ast.parse(source))
    reader.visit(reader.tree)
    return reader.program


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an expression of names, else None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


class _Reader(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.program = Program()
        self._local: list[set[str]] = []
        self._of_class: set[str] = set()
        self._optional = 0
        self._bound: dict[str, list[str]] = {}
        self._configurations: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for short, full in _imported(node):
                    self._bind(short, full)
        # Names such as `layers = tf.keras.layers`, which may build on each other; then configurations, likewise.
        assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        for node in assignments:
            value, targets = dotted(node.value), [each.id for each in node.targets if isinstance(each, ast.Name)]
            for full in self._full(value) if value is not None and "." in value else ():
                for target in targets:
                    self._bind(target, full)
        for node in assignments:
            if isinstance(node.value, ast.Call) and self._makes_configuration(node.value):
                self._configurations |= {name for name in map(dotted, node.targets) if name is not None}

    def _bind(self, short: str, full: str) -> None:
        if full not in self._bound.setdefault(short, []):
            self._bound[short].append(full)

    def _makes_configuration(self, call: ast.Call) -> bool:
        function = dotted(call.func) or ""
        last = function.rpartition(".")[2]
        first = dotted(call.args[0]) if call.args else None
        return last in CONFIGURATIONS or (
            last.startswith(("set_", "auto_select", "select_")) and first in self._configurations
        )

    def _full(self, name: str) -> tuple[str, ...]:
        first, dot, rest = name.partition(".")
        if first in self._of_class or any(first in names for names in self._local):
            return ()
        return tuple(f"{full}{dot}{rest}" for full in self._bound.get(first, ()))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.program.uses.append(Use(node.lineno, (alias.name,), self._optional > 0))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module is None or node.level:
            return
        for alias in node.names:
            name = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            self.program.uses.append(Use(node.lineno, (name,), self._optional > 0))

    def visit_Try(self, node: ast.Try) -> None:
        caught = {name.rpartition(".")[2] for handler in node.handlers for name in _caught(handler)}
        tolerant = bool(caught & IMPORT_ERRORS)
        self._optional += tolerant
        for child in (*node.body, *node.handlers):
            self.visit(child)
        self._optional -= tolerant
        for child in (*node.orelse, *node.finalbody):
            self.visit(child)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for outer in (*getattr(node, "decorator_list", ()), *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outer)
        arguments = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        self._local.append(arguments | {name for name in stored if name not in self._bound})
        of_class, self._of_class = self._of_class, set()  # which the body does not see
        for child in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(child)
        self._of_class = of_class
        self._local.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        of_class = self._of_class
        self._of_class = of_class | {each.name for each in node.body if isinstance(each, FUNCTIONS)}
        self.generic_visit(node)
        self._of_class = of_class

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            name = dotted(target) or ""
            for configuration in self._configurations:
                if name.startswith(f"{configuration}."):
                    option = name.removeprefix(f"{configuration}.")
                    self.program.options.append(OptionSet(node.lineno, option, node.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
        method = node.func.attr if isinstance(node.func, ast.Attribute) else None
        full = self._full(name) if name is not None else ()
        self.program.calls.append(Call(node.lineno, full, method, keywords, len(keywords) < len(node.keywords)))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = dotted(node)
        if name is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load) and (full := self._full(name)):
            self.program.uses.append(Use(node.lineno, full, self._optional > 0))


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that a statement binds, each with its full name."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif node.module is not None and not node.level:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _caught(handler: ast.ExceptHandler) -> Iterator[str]:
    if handler.type is None:
        yield "Exception"
    else:
        yield from (name for name in map(dotted, ast.walk(handler.type)) if name is not None)
