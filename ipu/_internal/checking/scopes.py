"""The names that scopes of a program bind, and the blocks in which a graph is the default."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ipu._internal.checking.live import FUNCTIONS

INNER = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an expression of names, else None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def of_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's or module's own scope, without those inside functions, classes and comprehensions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, INNER):
            yield from of_scope(child)


def captured(node: ast.AST) -> str:
    """The name that a pattern of a `match` statement or a handler of errors binds; "" for other nodes."""
    if isinstance(node, ast.MatchMapping):
        return node.rest or ""
    return (node.name or "") if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) else ""


def is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def is_only_none(tree: ast.Module, name: str) -> bool:
    """Whether the module assigns nothing but None to a name, as where an import has failed."""
    stored = [
        node
        for node in of_scope(tree)
        if (isinstance(node, ast.Name) and node.id == name and is_stored(node))
        or (node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else captured(node)) == name
    ]
    assigned = [
        node
        for node in of_scope(tree)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    constants = [node for node in assigned if isinstance(node.value, ast.Constant) or dotted(node.value) is not None]
    return len(stored) == len(constants)


def defined(tree: ast.Module) -> frozenset[str] | None:
    """The names that a module has after its execution; None if only the execution shows them."""
    found = {"__all__", "__doc__", "__file__", "__name__"}
    for node in of_scope(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return None
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and is_stored(node):
            found.add(node.id)
        elif not isinstance(node, ast.ExceptHandler):
            found.add(captured(node))
    named = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Global))
    made = any(isinstance(node, ast.Global) or node.id in ("globals", "vars", "exec", "setattr") for node in named)
    return None if made or "__getattr__" in found else frozenset(found)


def graph_blocks(tree: ast.Module) -> tuple[list[range], bool]:
    """The lines of all `with X.as_default()`, and whether there is neither another `as_default` nor an import there."""
    blocks, inside = [], 0
    for node in ast.walk(tree):
        items = node.items if isinstance(node, ast.With) else []
        count = sum(_makes_default(each.context_expr) for each in items)
        if count:
            blocks.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
            inside += count
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    imported = any(each.lineno in block for each in imports for block in blocks)
    return blocks, inside == sum(map(_makes_default, ast.walk(tree))) and not imported


def _makes_default(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "as_default"
