"""Executes tutorials and lessons, which are notebooks: docs/tutorials/NAME.py in the percent format is the source.

`python -m tests.examples.notebooks [SOURCE ...]` fails where one raises or has outputs of other kinds than those in
NAME.ipynb; with `--write` it puts the outputs there. Each runs in a folder that is removed afterwards.

In a lesson, of docs/teaching, cells with the tag "solution" are empty in NAME.ipynb, and NAME_solutions.ipynb has them.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).parent.parent.parent / "docs"
SOURCES = [path for folder in ("tutorials", "teaching") for path in sorted((DOCS / folder).glob("*.py"))]
EMPTY = "# Your lines"
"""Content of a cell in which readers of a lesson write their solution."""
SECONDS = 300
"""The longest that a cell may take: one that hangs ends."""
PATIENT: dict[str, Any] = {
    **{name: SECONDS for name in ("timeout", "startup_timeout", "iopub_timeout")},
    "raise_on_iopub_timeout": True,
}
"""Options of nbclient for a busy machine: outputs later than 4 seconds would be left out."""
NOISE = re.compile(
    r"\x1b\[[\d;]*m|^(WARNING: All log messages before|[IW]0000 |INFO:tensorflow:|IPU: compil).*\n", re.M
)
"""Pattern of a terminal's colours, and of lines that TensorFlow logs in any program."""


def notebook(source: Path) -> Any:
    """The notebook without outputs."""
    made = jupytext.read(source)
    tags = [cell.metadata.get("tags", []) for cell in made.cells]
    made.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    for number, (cell, of_cell) in enumerate(zip(made.cells, tags, strict=True)):
        name = "solution" if "solution" in of_cell else "cell"
        cell.id, cell.metadata = f"{name}-{number}", nbformat.NotebookNode()
    return made


def is_solution(cell: Any) -> bool:
    """Whether a cell of a lesson is an answer."""
    return bool(cell.id.startswith("solution-"))


def variants(source: Path, whole: Any) -> dict[Path, Any]:
    """The notebooks that are made of the whole one, by path: of a lesson one with exercises and one with solutions."""
    path = source.with_suffix(".ipynb")
    if not any(map(is_solution, whole.cells)):
        return {path: whole}
    exercises = copy.deepcopy(whole)
    for cell in filter(is_solution, exercises.cells):
        cell.source, cell.outputs = EMPTY, []
    return {path: exercises, path.with_stem(f"{path.stem}_solutions"): whole}


def executed(source: Path) -> Any:
    """The notebook with outputs; raises CellExecutionError with the traceback of a cell that raises."""
    made = notebook(source)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(made, kernel_name="python3", resources={"metadata": {"path": folder}}, **PATIENT).execute()
    for cell in made.cells:
        cell.metadata = nbformat.NotebookNode()  # times of execution
        if cell.cell_type == "code":
            cell.outputs = [*_joined(cell.outputs, folder)]
    return made


def _joined(outputs: list[Any], folder: str) -> Iterator[Any]:
    """The outputs; printouts of one stream are one, without noise, as their number is a matter of time."""
    for output in outputs:
        if output.output_type != "stream":
            yield output
            continue
        same = [each for each in outputs if each.output_type == "stream" and each.name == output.name]
        text = NOISE.sub("", "".join(each.text for each in same)).replace(folder, ".")
        if text and output is same[0]:
            yield nbformat.v4.new_output("stream", name=output.name, text=text)


def kept(path: Path) -> Any:
    """The notebook with the outputs of an earlier execution."""
    return nbformat.read(path, 4)


def kinds(made: Any) -> list[tuple[str, list[tuple[str, ...]]]]:
    """The structure of a notebook: of each cell its source and the kinds of its outputs, without logs."""
    return [
        (cell.source, [tuple(sorted(each.get("data", ["text"]))) for each in outputs if each.get("name") != "stderr"])
        for cell, outputs in ((cell, cell.get("outputs", ())) for cell in made.cells)
    ]


def main() -> int:
    """0 if all outputs have the kinds of those kept, else 1."""
    parser = argparse.ArgumentParser(description="Executes tutorials and compares the structure of their outputs.")
    parser.add_argument("source", type=Path, nargs="*", default=SOURCES)
    parser.add_argument("--write", action="store_true", help="keep the outputs")
    arguments = parser.parse_args()
    failed = []
    for source in arguments.source:
        for path, made in variants(source, executed(source)).items():
            if arguments.write:
                nbformat.write(made, path)
            elif kinds(made) != kinds(kept(path)):
                failed.append(path.name)
    print(f"other outputs than those kept: {failed}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
