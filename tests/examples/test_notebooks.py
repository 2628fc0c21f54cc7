"""The tutorials run, and the outputs kept in their notebooks are those of their cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parent.parent.parent / "docs" / "tutorials").glob("*.py"))
EXECUTED = "pipeline"
"""Notebook that runs by default, because it shows pictures; --all runs all others."""


@pytest.fixture(autouse=True)
def needs_jupyter() -> None:
    for module in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(module)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_kept_outputs_are_those_of_the_source(source: Path) -> None:
    from tests.examples.notebooks import kept, notebook

    made, found = notebook(source), kept(source)
    assert [cell.source for cell in found.cells] == [cell.source for cell in made.cells]
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert 8 <= len(found.cells) <= 17


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [pytest.param(each, id=each.stem, marks=() if each.stem == EXECUTED else pytest.mark.explore) for each in SOURCES],
)
def test_a_tutorial_runs_and_shows_what_is_kept(source: Path) -> None:
    from tests.examples.notebooks import executed, kept, kinds

    assert kinds(executed(source)) == kinds(kept(source))


def test_every_source_is_a_page_with_its_outputs() -> None:
    import importlib.util

    path = SOURCES[0].parent.parent / "site" / "tutorials.py"
    specification = importlib.util.spec_from_file_location("tutorials", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    pages = module.pages(path.parent.parent)
    assert [*pages] == [f"tutorials/{source.stem}.md" for source in SOURCES]
    assert "<svg" in pages["tutorials/pipeline.md"]
    for source in SOURCES:
        cells = json.loads(source.with_suffix(".ipynb").read_text())["cells"]
        shown = sum(len(cell.get("outputs", ())) for cell in cells)
        assert pages[f"tutorials/{source.stem}.md"].count('class="cell-output"') == shown
