"""Python blocks of pages need nothing but the page itself: tests/packaging/test_pages.py runs them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import tables
from tests.examples.pages import BLOCK

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docs").glob("t*/*.py"))]
IN_THE_CLONE = {"tests", "examples", "benchmarks"}
"""Folders that wheels do not contain."""


def blocks(page: str) -> Iterator[tuple[int, ast.Module]]:
    """Each Python block with its line."""
    for found in BLOCK.finditer(page):
        yield page.count("\n", 0, found.start()) + 1, ast.parse(found["code"])


def made(node: ast.AST) -> str | None:
    """The name that a node binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.arg(arg=name) | ast.ExceptHandler(name=name):
            return name
        case ast.alias(name=name, asname=other):
            return other or name.partition(".")[0]
    return None


def unknown(page: str) -> list[tuple[int, str]]:
    """Names that a block loads but that neither it nor a block above binds, with the block's line."""
    known, found = {*dir(builtins), "__name__"}, []
    for line, block in blocks(page):
        nodes = [*ast.walk(block)]
        known.update(filter(None, map(made, nodes)))
        loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        found += [(line, name) for name in sorted(loaded - known)]
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a block imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_blocks_need_no_clone_and_no_other_page(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    notebook = path.suffix == ".py"
    modules = {name for _, tree in ([(1, ast.parse(page))] if notebook else blocks(page)) for name in imported(tree)}
    assert not [name for name in modules if name.partition(".")[0] in IN_THE_CLONE]
    if any("._internal" in name for name in modules):
        assert not notebook and "internal functions" in BLOCK.sub("", page), "say that they may change"
    if not notebook:
        assert unknown(page) == []


def test_unknown_names_are_found() -> None:
    page = "```python\ndef f(a):\n    return a + b\n```\n\n```python\nb = f(c)\n```\n"
    assert unknown(page) == [(1, "b"), (6, "c")]


@pytest.mark.parametrize("name", ["options", "supported_ops"])
def test_tables_are_those_of_the_package(name: str) -> None:
    page = (tables.DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert len(tables.MARKED.findall(page)) == 3
    assert page == tables.written(page), "python -m tests.examples.tables writes them"
