"""Verdicts of `python -m ipu.check` on programs that are then run: those that need no change end well, others fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ipu._internal.checking.command import main
from ipu._internal.checking.files import source_of
from tests import forking

BEGIN = """
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
"""
OFF = "tf.disable_v2_behavior()\n"
GRAPH = """
x = tf.placeholder(tf.float32, [2])
with ipu.scopes.ipu_scope("/device:IPU:0"):
    (out,) = ipu.ipu_compiler.compile(lambda x: x * 2.0, [x])
"""
RUN = """
with tf.Session() as session:
    assert session.run(out, {x: np.ones(2)}).sum() == 4
"""
WHOLE = BEGIN + OFF + GRAPH + RUN
HELPER = BEGIN + "def graph():\n" + GRAPH.strip().replace("\n", "\n    ").join(["    ", "\n    return x, out\n"])
USER = BEGIN + OFF + "from helper import graph\nx, out = graph()\n" + RUN
KERAS = """
import os
{}
import numpy as np, tensorflow as tf
assert tf.keras.layers.Dense(3, batch_input_shape=(2, 4))(np.ones([2, 4], np.float32)).shape == (2, 3)
assert tf.compat.v1.layers.dense is not None
"""
PRECOMPILED = "from tensorflow.python.ipu.custom_ops import precompiled_user_op\n"
CELLS = [BEGIN.strip() + "\n%matplotlib inline", OFF, GRAPH, "!ls\n" + RUN.strip()]


def notebook(*cells: str) -> str:
    """The text of a notebook."""
    return json.dumps({"cells": [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]})


PROGRAMS: dict[str, tuple[dict[str, str], str]] = {
    "whole": ({}, WHOLE),
    "in a graph of its own": ({}, BEGIN + "graph = tf.Graph().as_default()\ngraph.__enter__()\n" + GRAPH + RUN),
    "eager mode": ({}, BEGIN + GRAPH + RUN),
    "eager mode, a session as default": (
        {},
        BEGIN + "session = tf.Session().as_default()\nsession.__enter__()\n" + GRAPH + RUN,
    ),
    "eager mode, a graph that is none's": ({}, BEGIN + "g = tf.Graph()" + GRAPH + RUN.replace("()", "(graph=g)", 1)),
    "eager mode, a graph in a signature": ({}, BEGIN + "def f(g: tf.Graph) -> None: ...\n" + GRAPH + RUN),
    "eager mode, off too late": ({}, BEGIN + GRAPH + OFF + RUN),
    "eager mode, off in a function above": ({}, BEGIN + "def off():\n    " + OFF + "off()\n" + GRAPH + RUN),
    "eager tensors in graphs": ({}, BEGIN + OFF + "print((tf.constant(1.0) + 1).numpy())\n"),
    "eager tensors": ({}, BEGIN + "print((tf.constant(1.0) + 1).numpy())\n"),
    "name that nothing has": ({}, WHOLE.replace("ipu_scope", "ipu_scopes")),
    "name of TensorFlow 1": ({}, WHOLE.replace("tensorflow.compat.v1", "tensorflow")),
    "name of another release, guarded": (
        {},
        "try:\n    from tensorflow.contrib import ipu\nexcept ImportError:\n    pass\n" + WHOLE,
    ),
    "argument that nothing has": ({}, WHOLE.replace("[x])", "[x], device=0)")),
    "precompiled operation, imported": ({}, PRECOMPILED + WHOLE),
    "precompiled operation, called": ({}, PRECOMPILED + WHOLE + "precompiled_user_op([x], 'x.so')\n"),
    "eager mode off beside": ({"off.py": BEGIN + OFF}, BEGIN + "import off\n" + GRAPH + RUN),
    "eager mode on beside": ({"on.py": BEGIN}, BEGIN + "import on\n" + GRAPH + RUN),
    "graph beside": ({"helper.py": HELPER}, USER),
    "graph beside, eager mode": ({"helper.py": HELPER}, USER.replace(OFF, "")),
    "graph in a package": (
        {"helper/__init__.py": "from .parts import graph\n", "helper/parts.py": HELPER},
        USER,
    ),
    "missing name beside": ({"helper.py": HELPER.replace("ipu_scope", "ipu_scopes")}, USER),
    "nothing beside": ({}, USER),
    "name that is not beside": ({"helper.py": HELPER.replace("def graph", "def graphs")}, USER),
    "name made beside": (
        {"helper.py": HELPER.replace("def graph", "def _g") + "\nglobals()['graph'] = _g\n"},
        USER,
    ),
    "Keras 2 chosen": ({}, KERAS.format("os.environ['TF_USE_LEGACY_KERAS'] = '1'")),
    "Keras 2 not chosen": ({}, KERAS.format("os.environ['TF_USE_LEGACY_KERAS'] = '0'")),
    "off by a name of all": ({}, BEGIN + "from tensorflow.compat.v1 import *\ndisable_v2_behavior()\n" + GRAPH + RUN),
    "names that are asked for": (
        {},
        "import tensorflow\nif hasattr(tensorflow, 'Session'):\n    tensorflow.Session()\n"
        "if tensorflow.__version__.startswith('1'):\n    tensorflow.placeholder\n" + WHOLE,
    ),
    "name a conditional expression asks for": (
        {},
        "import tensorflow\nfound = tensorflow.Session if hasattr(tensorflow, 'Session') else None\n"
        "is_old = hasattr(tensorflow, 'Session') and tensorflow.Session is found\n" + WHOLE,
    ),
    "name in an option's branch": ({}, WHOLE + "class A: a = 1\nif hasattr(A, 'a'):\n    ipu.utils.nothing()\n"),
    "name that NumPy has lost": ({}, WHOLE + "np.float(1)\n"),
    "name that collections have lost": ({}, WHOLE + "import collections\ncollections.Iterable\n"),
    "local names": ({}, WHOLE + "def f(out):\n    ipu = [out]\n    ipu.sort()\n    return ipu\nf(1)\n"),
}


def check_and_run(folder: Path, files: dict[str, str], name: str) -> tuple[list[str], str]:
    """The names of all findings but notes, and how the program ends: "" or its last line."""
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    program = folder / name
    if program.suffix == ".ipynb":  # as its cells
        program = folder / "cells.py"
        program.write_text(str(source_of(folder / name)))
    code, output = forking.run(forking.program, program, TF_CPP_MIN_LOG_LEVEL="3")
    return found_in(folder / name), "" if code == 0 else output.strip().splitlines()[-1]


def found_in(path: Path) -> list[str]:
    """The names of all findings of a program and its modules but notes."""
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda text: printed.append(text))
        status = main([str(path), "--json"])
    programs = json.loads(printed[0]).values()
    found = [each["name"] for program in programs for each in program["findings"] if each["level"] != "note"]
    assert bool(status) == bool(found)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_end_as_the_check_says(name: str, tmp_path: Path) -> None:
    files, program = PROGRAMS[name]
    found, end = check_and_run(tmp_path, {**files, "main.py": program}, "main.py")
    assert bool(found) == bool(end), (found, end)


def off_missing(cells: list[str]) -> list[str]:
    return [cells[0], *cells[2:]]


@pytest.mark.parametrize("change", [list, off_missing])
def test_notebooks_end_as_the_check_says(change: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    found, end = check_and_run(tmp_path, {"book.ipynb": notebook(*change(CELLS))}, "book.ipynb")
    assert bool(found) == bool(end) == (change is not list), (found, end)
