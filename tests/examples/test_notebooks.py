"""The tutorials and lessons run, and the outputs kept in their notebooks are those of their cells."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
SOURCES = [path for folder in ("tutorials", "teaching") for path in sorted((DOCS / folder).glob("*.py"))]
LESSONS = [path for path in SOURCES if path.parent.name == "teaching"]
EXECUTED = "pipeline"
"""Notebook that runs by default, because it shows pictures; --all runs all others."""


@pytest.fixture(autouse=True)
def needs_jupyter() -> None:
    for module in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(module)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_kept_outputs_are_those_of_the_source(source: Path) -> None:
    from tests.examples.notebooks import kept, notebook, variants

    for path, made in variants(source, notebook(source)).items():
        found = kept(path)
        assert [cell.source for cell in found.cells] == [cell.source for cell in made.cells]
        code = [cell for cell in found.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
        assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
        assert 8 <= len(found.cells) <= (30 if source in LESSONS else 17)


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
def test_a_lesson_goes_on_without_its_solutions(source: Path) -> None:
    """Cells outside of solutions use no name that only solutions make, and each exercise has a cell."""
    from tests.examples.notebooks import EMPTY, is_solution, notebook, variants

    whole = notebook(source)
    code = [cell for cell in whole.cells if cell.cell_type == "code"]
    names = {True: set[str](), False: set[str]()}
    for cell in code:
        names[is_solution(cell)] |= {name for node in ast.walk(ast.parse(cell.source)) for name in made_by(node)}
    used = {
        node.id
        for cell in code
        if not is_solution(cell)
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert not used & (names[True] - names[False])
    exercises, solutions = variants(source, whole).values()
    assert any(cell.source == EMPTY for cell in exercises.cells)
    assert not any(cell.source == EMPTY for cell in solutions.cells)
    for at, cell in enumerate(whole.cells):
        if "**Exercise" in cell.source:
            assert is_solution(whole.cells[at + 1])


def made_by(node: ast.AST) -> list[str]:
    """Names that a node binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
            return [name]
        case ast.alias(name=name, asname=other):
            return [other or name.partition(".")[0]]
        case ast.arg(arg=name):
            return [name]
    return []


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [pytest.param(each, id=each.stem, marks=() if each.stem == EXECUTED else pytest.mark.explore) for each in SOURCES],
)
def test_a_tutorial_runs_and_shows_what_is_kept(source: Path) -> None:
    from tests.examples.notebooks import executed, kept, kinds, variants

    for path, made in variants(source, executed(source)).items():
        assert kinds(made) == kinds(kept(path))


def test_every_source_is_a_page_with_its_outputs() -> None:
    import importlib.util

    path = DOCS / "site" / "tutorials.py"
    specification = importlib.util.spec_from_file_location("tutorials", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    pages = module.pages(DOCS)
    names = [f"{source.parent.name}/{source.stem}.md" for source in SOURCES]
    assert sorted(pages) == sorted([*names, *(f"teaching/{source.stem}_solutions.md" for source in LESSONS)])
    assert "<svg" in pages["tutorials/pipeline.md"] and "<svg" in pages["teaching/supersteps.md"]
    for name, page in pages.items():
        cells = json.loads((DOCS / name).with_suffix(".ipynb").read_text())["cells"]
        shown = sum(len(cell.get("outputs", ())) for cell in cells)
        assert page.count('class="cell-output"') == shown
