"""The code of a program that runs: without branches of constants, and without functions that nothing mentions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BY_COMPUTED_NAMES = frozenset({"Fire", "eval", "exec", "getmembers", "globals", "import_module", "locals", "vars"})
"""Functions by which a program may call others whose names are nowhere in its text."""
PREPARING = frozenset(
    {
        *("append", "basicConfig", "disable_eager_execution", "disable_v2_behavior", "filterwarnings", "insert"),
        *("set_random_seed", "set_verbosity", "setdefault", "simplefilter"),
    }
)
"""Methods that modules of functions call as they are imported, too."""
OF_CLASSES = frozenset({"classmethod", "property", "staticmethod"})


@dataclass
class Mentions:
    """The functions and classes of a module, with the lines of their bodies, and the names that each part mentions.

    The part "" is the module itself. `acts` is whether it does more than to define; `computes` whether it may call
    functions by names that it computes.
    """

    bodies: dict[str, list[range]] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    acts: bool = False
    computes: bool = False


class LiveBranches(ast.NodeTransformer):
    """Leaves out what constants keep from running: `if False`, `if TYPE_CHECKING`, `while 0` and their kind."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        """The branch that a constant condition chooses, else the statement."""
        known = _truth(node.test)
        self.generic_visit(node)
        if known is None:
            return node
        return list(node.body if known else node.orelse) or [ast.copy_location(ast.Pass(), node)]

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.AST]:
        """The `else` branch of a loop that never begins, else the statement."""
        self.generic_visit(node)
        if _truth(node.test) is not False:
            return node
        return list(node.orelse) or [ast.copy_location(ast.Pass(), node)]


def _truth(test: ast.expr) -> bool | None:
    """Whether a condition holds; None for one that is not constant."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        known = _truth(test.operand)
        return None if known is None else not known
    if isinstance(test, ast.Constant):
        return bool(test.value)
    is_typing = isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name) and test.value.id == "typing"
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) and is_typing else ""
    return False if name == "TYPE_CHECKING" else None


def mentions(tree: ast.Module) -> Mentions:
    """The mentions of a module."""
    found = Mentions(names={"": set()}, acts=any(map(_acts, tree.body)), computes=any(map(_computes, ast.walk(tree))))
    for node in tree.body:
        bodies = list(_bodies(node))
        inside = {id(each) for body in bodies for statement in body for each in ast.walk(statement)}
        found.names[""] |= {name for each in ast.walk(node) if id(each) not in inside for name in _mentioned(each)}
        if bodies:
            name = getattr(node, "name", "")
            found.bodies.setdefault(name, []).extend(range(b[0].lineno, (b[-1].end_lineno or 0) + 1) for b in bodies)
            within = (each for body in bodies for statement in body for each in ast.walk(statement))
            found.names.setdefault(name, set()).update(name for each in within for name in _mentioned(each))
    return found


def uncalled(modules: Iterable[Mentions]) -> frozenset[str]:
    """Functions and classes of a program's modules that none of them can have called."""
    together = list(modules)
    if not any(each.acts for each in together) or any(each.computes for each in together):
        return frozenset()
    defined = {name for each in together for name in each.bodies}
    called, pending = set[str](), [""]
    while pending:
        part = pending.pop()
        mentioned = {name for each in together for name in each.names.get(part, ())} & defined - called
        called |= mentioned
        pending += mentioned
    return frozenset(defined - called)


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _last(node.value.func) not in PREPARING
    guard = isinstance(node, ast.If) and "__name__" in {e.id for e in ast.walk(node.test) if isinstance(e, ast.Name)}
    return guard or isinstance(node, ast.With | ast.For | ast.While | ast.Assert)


def _computes(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("__dict__", "__subclasses__")
    if not isinstance(node, ast.Call):
        return False
    last = _last(node.func)
    constant = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    return last in BY_COMPUTED_NAMES or (last == "getattr" and not constant)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The bodies of a plain function, or of the methods of a plain class, which no decorator or base can call."""
    plain: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    if isinstance(node, ast.ClassDef) and not (node.decorator_list or node.bases or node.keywords):
        methods = [each for each in node.body if isinstance(each, FUNCTIONS)]
        plain = [each for each in methods if all(_last(by) in OF_CLASSES for by in each.decorator_list)]
    elif isinstance(node, FUNCTIONS) and not node.decorator_list and not node.name.startswith("__"):
        plain = [node]
    for each in plain:
        last = max(
            (argument.end_lineno or 0 for argument in ast.walk(each.args) if isinstance(argument, ast.expr | ast.arg)),
            default=0,
        )
        if each.body[0].lineno > max(last, each.lineno):  # a default on the line of the body is executed
            yield each.body


def _mentioned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute):
        yield _last(node)
        if _last(node) == "run":  # tf.app.run calls a function of this name
            yield "main"
    elif isinstance(node, ast.ImportFrom | ast.Import):
        yield from (alias.name.rpartition(".")[2] for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
