"""Executes the tutorials, which are notebooks: docs/tutorials/NAME.py in the percent format is the source of each.

`python -m tests.examples.notebooks [SOURCE ...]` fails where one raises or has outputs of other kinds than those in
NAME.ipynb; with `--write` it puts the outputs there. Each runs in a folder that is removed afterwards.
"""

from __future__ import annotations

import argparse
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

FOLDER = Path(__file__).parent.parent.parent / "docs" / "tutorials"
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
    made.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    for number, cell in enumerate(made.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.NotebookNode()
    return made


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


def kept(source: Path) -> Any:
    """The notebook with the outputs of an earlier execution."""
    return nbformat.read(source.with_suffix(".ipynb"), 4)


def kinds(made: Any) -> list[tuple[str, list[tuple[str, ...]]]]:
    """The structure of a notebook: of each cell its source and the kinds of its outputs, without logs."""
    return [
        (cell.source, [tuple(sorted(each.get("data", ["text"]))) for each in outputs if each.get("name") != "stderr"])
        for cell, outputs in ((cell, cell.get("outputs", ())) for cell in made.cells)
    ]


def main() -> int:
    """0 if all outputs have the kinds of those kept, else 1."""
    parser = argparse.ArgumentParser(description="Executes tutorials and compares the structure of their outputs.")
    parser.add_argument("source", type=Path, nargs="*", default=sorted(FOLDER.glob("*.py")))
    parser.add_argument("--write", action="store_true", help="keep the outputs")
    arguments = parser.parse_args()
    failed = []
    for source in arguments.source:
        made = executed(source)
        if arguments.write:
            nbformat.write(made, source.with_suffix(".ipynb"))
        elif kinds(made) != kinds(kept(source)):
            failed.append(source.name)
    print(f"other outputs than those kept: {failed}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
