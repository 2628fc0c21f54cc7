"""docs/adding_an_op.md is followed: its changes, made in a copy of the sources, add an operation that runs.

A structured operation is added to a copy by changes of four files, and a fifth with its test.
"""

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

STRUCTURED = (
    ("engine/ir/opcodes.py", '_lowered("transpose",', '_lowered("diagonal", "data movement", structured.diagonal),\n'),
    (
        "engine/ir/structured_shape_rules.py",
        "def dot(",
        "def diagonal(instruction: Instruction) -> AnyShape:\n"
        "    (shape,) = array_operands(instruction, 1)\n"
        '    require(shape.rank > 1 and len(set(shape.dimensions[:2])) == 1, "Expected a square matrix.")\n'
        "    return shape.with_dimensions(shape.dimensions[1:])\n\n\n",
    ),
    (
        "engine/ops/shaping.py",
        '@definition("iota")',
        '@definition("diagonal")\n'
        "def _diagonal(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:\n"
        "    return np.moveaxis(np.diagonal(operands[0]), -1, 0)\n\n\n",
    ),
    (
        "engine/lower/basics.py",
        '@lowering("iota")',
        '@lowering("diagonal")\n'
        "def lower_diagonal(context: Context, instruction: Instruction) -> Value:\n"
        "    result, source = context.result_buffer(instruction), context.view(instruction.operands[0])\n"
        "    strides = sum(source.strides[:2]), *source.strides[2:]\n"
        "    view = View(source.buffer, instruction.array_shape, source.offset, strides)\n"
        "    copy(context, instruction.name, view, whole(result, instruction.array_shape), instruction.op_name)\n"
        "    return result\n\n\n",
    ),
)
"""A file, the start of the line before which a text is inserted, and the text."""
STRUCTURED_TEST = """
import numpy as np

from engine.ir import Shape
from engine.ir.builder import Builder
from tests.engine.running import check

for dimensions in ((5, 5), (3, 3, 7), (1, 1), (0, 0, 4)):
    b = Builder()
    x = b.elementwise("negate", b.parameter("f32", dimensions))
    y = b.instruction("diagonal", Shape("f32", dimensions[1:]), (x,))
    b.elementwise("exponential", y)
    x = np.random.default_rng(0).normal(size=dimensions).astype(np.float32)
    check(b.module(), [np.where(x > 1, np.nan, x)])
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


@pytest.mark.slow
def test_a_structured_operation_needs_five_files(tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "tests" / "opcodes" / "test_diagonal.py").write_text(STRUCTURED_TEST)
    assert "diagonal" in run(tmp_path, "import tests.opcodes.test_diagonal").stderr
    for each in STRUCTURED:
        change(tmp_path, *each)
    assert len({file for file, _, _ in STRUCTURED}) + 1 <= 5
    done = run(tmp_path, "import tests.opcodes.test_diagonal, tests.ir.test_opcodes")
    assert done.returncode == 0, done.stderr
