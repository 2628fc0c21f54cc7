"""docs/adding_an_op.md is followed: its changes, made in a copy of the sources, add an operation that runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parents[2]
CHANGE = re.compile(r"In `(?P<file>\S+)`, before `(?P<line>[^`]+)`:\n\n```text\n(?P<text>.*?)```", re.S)
CHECKED = """
import numpy as np

import engine
from engine.compile import compile_module
from engine.evaluate import evaluate
from engine.ir.builder import Builder
from engine.runtime.feeds import RowFeed
from tests.emit import test_elementwise
from tests.emit.cases import FLOATS

for kind in FLOATS:
    test_elementwise.test_functions("cosh", kind)
test_elementwise.test_rows_name_the_element_types_that_are_tried("cosh")
test_elementwise.test_every_emitter_is_tested()

# In a fused loop, of one step of 3 x 5 elements.
b = Builder()
x = b.parameter("f32", (3, 5))
b.add(b.elementwise("cosh", x), x)
values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
(result,) = compile_module(b.module(), ["feed"], {}, verify=True).run(1, [RowFeed(values)], [])
np.testing.assert_allclose(result, np.cosh(values) + values, rtol=1e-6)
np.testing.assert_allclose(evaluate(b.module(), [values])[0], np.cosh(values) + values, rtol=1e-6)
print(engine.__file__)
"""


def copied(folder: Path) -> None:
    for name in ("engine", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def change(folder: Path, file: str, line: str, text: str) -> None:
    """Inserts the text before the one line that begins with `line`, indented like it."""
    lines = (folder / file).read_text().splitlines(keepends=True)
    (at,) = [number for number, each in enumerate(lines) if each.strip().startswith(line)]
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines[at:at] = [indent + each for each in text.splitlines(keepends=True)]
    (folder / file).write_text("".join(lines))


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )


@pytest.mark.slow
def test_page_adds_an_operation(tmp_path: Path) -> None:
    copied(tmp_path)
    steps = list(CHANGE.finditer((ROOT / "docs" / "adding_an_op.md").read_text()))
    assert [step["file"].split("/")[0] for step in steps] == ["engine", "engine", "engine", "tests"]
    change(tmp_path, **steps[0].groupdict())
    lacking = run(tmp_path, "import engine.ops")
    assert "Expected one definition for each opcode" in lacking.stderr and "none for cosh" in lacking.stderr
    for step in steps[1:]:
        change(tmp_path, **step.groupdict())
    done = run(tmp_path, CHECKED)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent.parent == tmp_path
