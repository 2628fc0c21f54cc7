"""The names, in full, the calls and the options of configurations in a program's source, with their lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ipu._internal.checking.live import FUNCTIONS, LiveBranches, Mentions, mentions
from ipu._internal.checking.scopes import captured, defined, dotted, graph_blocks, is_only_none, is_stored, of_scope

CONFIGURATIONS = ("IPUConfig", "IpuOptions", "create_ipu_config")
"""Last parts of the names of functions that return a configuration, as setters do that get one."""
OF_KERAS_1 = "tf_keras.api._v1.keras.__internal__.legacy"
LEGACY_NAMES = (
    ("tensorflow.compat.v1.keras", "tf_keras"),
    ("tensorflow.keras", "tf_keras"),
    ("tensorflow.compat.v1.layers", f"{OF_KERAS_1}.layers"),
    ("tensorflow.compat.v1.nn.rnn_cell", f"{OF_KERAS_1}.rnn_cell"),
)
"""Replacements for names of TensorFlow where Keras 2 is chosen."""
LEGACY = "TF_USE_LEGACY_KERAS"
VERSION_1 = ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1")
LEAVING = frozenset({"disable_v2_behavior", "disable_eager_execution"})
"""Functions after which there is no eager mode."""
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"})


@dataclass(frozen=True)
class NameUse:
    """A name that is imported or used: all full names it may stand for, and whether the program goes on without it.

    `is_import` says whether it is in an import statement, `at_top` whether it is outside of all functions, `is_bare`
    whether it is a name without a dot, `is_attribute` whether it is an attribute of the module `tensorflow`.
    """

    line: int
    names: tuple[str, ...]
    optional: bool = False
    is_import: bool = False
    at_top: bool = True
    is_bare: bool = False
    is_attribute: bool = False


@dataclass(frozen=True)
class CallSite:
    """A call of `names`, or of a method of something unknown, with the arguments it gives by name.

    `positional` is the number of those by position, None if only the execution shows it.
    """

    line: int
    names: tuple[str, ...]
    method: str | None
    keywords: dict[str, ast.expr]
    has_double_star: bool
    positional: int | None = 0
    at_top: bool = True


@dataclass(frozen=True)
class OptionSet:
    """An assignment to an option of a configuration."""

    line: int
    option: str
    value: ast.expr


@dataclass(frozen=True)
class Imported:
    """A module that is imported, from `level` packages above if that is not 0; `names` are taken from it.

    It is `optional` where the program goes on without it.
    """

    line: int
    module: str
    level: int
    names: tuple[str, ...]
    optional: bool


@dataclass
class CheckedProgram:
    """Everything that the checks need of one program.

    `defined` are the names that its module has, None where only its execution shows them; `legacy_keras` is whether it
    sets the environment variable that chooses tf_keras. `blocks` are the lines of `with` statements that make a graph
    the default, and `closes` is whether nothing else does so.
    """

    uses: list[NameUse] = field(default_factory=list)
    calls: list[CallSite] = field(default_factory=list)
    options: list[OptionSet] = field(default_factory=list)
    imports: list[Imported] = field(default_factory=list)
    defined: frozenset[str] | None = None
    legacy_keras: bool = False
    blocks: list[range] = field(default_factory=list)
    closes: bool = False
    mentions: Mentions = field(default_factory=Mentions)


def read(source: str | bytes) -> CheckedProgram:
    """The program of a Python file; raises SyntaxError."""
    reader = _Reader(LiveBranches().visit(ast.parse(source)))
    reader.visit(reader.tree)
    reader.program.mentions = mentions(reader.tree)
    reader.program.blocks, reader.program.closes = graph_blocks(reader.tree)
    reader.program.defined = defined(reader.tree)
    reader.program.legacy_keras = any(map(_chooses_legacy_keras, ast.walk(reader.tree)))
    return reader.program


def with_legacy_keras(program: CheckedProgram) -> CheckedProgram:
    """The program as it is where tf.keras is tf_keras: names of Keras are those of that package."""
    renamed = lambda each: replace(each, names=tuple(map(_of_legacy_keras, each.names)))  # noqa: E731
    uses, calls = [renamed(use) for use in program.uses], [renamed(call) for call in program.calls]
    return replace(program, uses=uses, calls=calls, legacy_keras=True)


def _of_legacy_keras(name: str) -> str:
    for of_tensorflow, real in LEGACY_NAMES:
        if name == of_tensorflow or name.startswith(f"{of_tensorflow}."):
            return real + name[len(of_tensorflow) :]
    return name


class _Reader(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.program = CheckedProgram()
        self._local: list[dict[str, tuple[str, ...]]] = []
        self._of_class: set[str] = set()
        self._optional = 0
        self._bound: dict[str, list[str]] = {}
        self._configurations: set[str] = set()
        for node in of_scope(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for short, full in _imported(node):
                    self._bind(short, full)
        # Names such as `layers = tf.keras.layers`, which may build on each other; then configurations, likewise.
        assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        for node in (each for each in of_scope(tree) if isinstance(each, ast.Assign)):
            value, targets = dotted(node.value), [each.id for each in node.targets if isinstance(each, ast.Name)]
            for full in self._full(value) if value is not None and "." in value else ():
                for target in targets:
                    self._bind(target, full)
        values = self._bound_in(tree)
        for name in self._bound.keys() & {name for name, full in values.items() if not full}:
            if not is_only_none(tree, name):  # a value of the program's own has the name, too
                self._bound[name] = []
        for function in (each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)):
            names = {name for node in of_scope(function) if isinstance(node, ast.Global) for name in node.names}
            for name, values_of in self._bindings(function).items() if names else ():
                if name in names:
                    self._bound[name] = list(
                        dict.fromkeys((*self._bound.get(name, ()), *values_of)) if values_of else ()
                    )
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
        if first in self._of_class:
            return ()
        known = next((names[first] for names in reversed(self._local) if first in names), self._bound.get(first, ()))
        return tuple(f"{full}{dot}{rest}" for full in known)

    def visit_Import(self, node: ast.Import) -> None:
        self.program.imports += _modules(node, self._optional > 0)
        for alias in node.names:
            self.program.uses.append(NameUse(node.lineno, (alias.name,), self._optional > 0, True))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.program.imports += _modules(node, self._optional > 0)
        if node.module is None or node.level:
            return
        for alias in node.names:
            name = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            self.program.uses.append(NameUse(node.lineno, (name,), self._optional > 0, True))

    def visit_If(self, node: ast.If | ast.IfExp | ast.BoolOp) -> None:
        asks = any(map(self._asks_for_names, ast.walk(node if isinstance(node, ast.BoolOp) else node.test)))
        self._optional += asks
        self.generic_visit(node)
        self._optional -= asks

    visit_IfExp = visit_BoolOp = visit_If

    def _asks_for_names(self, node: ast.AST) -> bool:
        """Whether a condition is on an import's name or version: the program has other names for other releases."""
        called = isinstance(node, ast.Call) and dotted(node.func) == "hasattr" and len(node.args) == 2
        asked = node.args[0] if isinstance(node, ast.Call) and called else node
        name = dotted(asked) or ""
        return bool(self._full(name)) and (called or name.endswith((".__version__", ".VERSION")))

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
        self._local.append({**self._bound_in(node), **dict.fromkeys(arguments, ())})
        of_class, self._of_class = self._of_class, set()  # the body does not see names of the class
        for child in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(child)
        self._of_class = of_class
        self._local.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def _bound_in(self, function: ast.AST) -> dict[str, tuple[str, ...]]:
        """The names of a function's own, with all full names that each may stand for; none for other values."""
        outer = (node.names for node in of_scope(function) if isinstance(node, ast.Global | ast.Nonlocal))
        elsewhere = {name for names in outer for name in names}
        return {name: full for name, full in self._bindings(function).items() if name not in elsewhere}

    def _bindings(self, function: ast.AST) -> dict[str, tuple[str, ...]]:
        """The names that a function binds, of its own or of the module, as in `_bound_in`."""
        found: dict[str, tuple[str, ...]] = {}
        stored = set()
        for node in of_scope(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for short, name in _imported(node):
                    found[short] = (*found.get(short, ()), name)
            elif isinstance(node, ast.Assign) and (full := self._full(dotted(node.value) or "")):
                found |= {each.id: full for each in node.targets if isinstance(each, ast.Name)}
            elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.withitem):
                stored |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and is_stored(each)}
            elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                stored.add(node.name)
            elif isinstance(node, ast.NamedExpr):
                stored.add(node.target.id)
            else:
                stored.add(captured(node))
        return {**found, **dict.fromkeys(stored, ())}

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        targets = (each for generator in node.generators for each in ast.walk(generator.target))
        self._local.append({each.id: () for each in targets if isinstance(each, ast.Name)})
        self.generic_visit(node)
        self._local.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

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
        self.program.calls.append(
            CallSite(
                *(node.lineno, full, method, keywords, len(keywords) < len(node.keywords)),
                positional=None if any(isinstance(each, ast.Starred) for each in node.args) else len(node.args),
                at_top=not self._local,
            )
        )
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = dotted(node)
        if name is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load) and (full := self._full(name)):
            of_tensorflow = "tensorflow" in self._full(name.partition(".")[0])
            use = NameUse(node.lineno, full, self._optional > 0, at_top=not self._local, is_attribute=of_tensorflow)
            self.program.uses.append(use)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and (full := self._full(node.id)):
            self.program.uses.append(
                NameUse(node.lineno, full, self._optional > 0, at_top=not self._local, is_bare=True)
            )


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that a statement binds, each with its full name."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif alias.name == "*" and node.module in VERSION_1:
            yield from ((name, f"{node.module}.{name}") for name in LEAVING)
        elif node.module is not None and not node.level:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _caught(handler: ast.ExceptHandler) -> Iterator[str]:
    if handler.type is None:
        yield "Exception"
    else:
        yield from (name for name in map(dotted, ast.walk(handler.type)) if name is not None)


def _modules(node: ast.Import | ast.ImportFrom, optional: bool) -> list[Imported]:
    if isinstance(node, ast.Import):
        return [Imported(node.lineno, alias.name, 0, (), optional) for alias in node.names]
    names = tuple(alias.name for alias in node.names)
    return [Imported(node.lineno, node.module or "", node.level, names, optional)]


def _chooses_legacy_keras(node: ast.AST) -> bool:
    """Whether a statement sets TF_USE_LEGACY_KERAS to a value that TensorFlow takes for yes."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key, value = node.targets[0].slice, node.value
    elif isinstance(node, ast.Call) and dotted(node.func) in (
        "os.environ.setdefault",
        "os.putenv",
        "environ.setdefault",
    ):
        key, value = (*node.args, ast.Constant(None), ast.Constant(None))[:2]
    else:
        return False
    constants = [each.value for each in (key, value) if isinstance(each, ast.Constant)]
    return constants in ([LEGACY, "1"], [LEGACY, "True"], [LEGACY, "true"])
