"""Verdicts of `python -m ipu.check` on code that does not run, graphs that close, and names bound in rare ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checking.test_verdicts import BEGIN, GRAPH, HELPER, OFF, RUN, USER, WHOLE, check_and_run


def indented(text: str) -> str:
    """The lines of a block."""
    return "    " + text.strip().replace("\n", "\n    ") + "\n"


K3 = "import keras\nimport numpy as np\nm = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])\n"
GLOBAL = """
def f():
    global tf, ipu
    import tensorflow.compat.v1 as tf
    from tensorflow.python import ipu
f()
"""
CLOSED = "with tf.Graph().as_default():\n    tf.constant(1)\n"
OPEN = "with tf.Graph().as_default():\n"
UNCALLED = WHOLE + "def f():\n    ipu.nothing()\n"
OTHER = HELPER + "def other():\n    ipu.nothing()\n"
FIT = "m.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)\n"
PROGRAMS: dict[str, tuple[dict[str, str], str]] = {
    "graph closed": ({}, BEGIN + CLOSED + GRAPH + RUN),
    "graph open": ({}, BEGIN + OPEN + indented(GRAPH + RUN)),
    "graph open around a call": (
        {},
        BEGIN + "def f():\n" + indented(GRAPH + RUN) + "with tf.Graph().as_default():\n    f()\n",
    ),
    "graph var with": (
        {},
        BEGIN
        + "g = tf.Graph()\nwith g.as_default():\n"
        + indented(GRAPH)
        + "with tf.Session(graph=g) as session:\n    assert session.run(out, {x: np.ones(2)}).sum() == 4\n",
    ),
    "if False": ({}, WHOLE + "if False:\n    ipu.utils.nothing()\n"),
    "if TYPE_CHECKING": (
        {},
        WHOLE
        + "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tensorflow.contrib import ipu as other\n",
    ),
    "if typing.TYPE_CHECKING": (
        {},
        WHOLE + "import typing\nif typing.TYPE_CHECKING:\n    import nowhere\nelse:\n    pass\n",
    ),
    "if True else": ({}, WHOLE + "if True:\n    pass\nelse:\n    ipu.utils.nothing()\n"),
    "decay": ({}, K3 + "m.compile(keras.optimizers.SGD(decay=0.1), 'mse')\n" + FIT),
    "lr": ({}, K3 + "m.compile(keras.optimizers.SGD(lr=0.1), 'mse')\n" + FIT),
    "keras.Model imported": ({}, "from tensorflow.python.ipu.keras import Model\n" + WHOLE),
    "keras.Model used": ({}, "from tensorflow.python.ipu.keras import Model\n" + WHOLE + "Model()\n"),
    "precompiled uncalled": (
        {},
        "from tensorflow.python.ipu.custom_ops import precompiled_user_op\n"
        + WHOLE
        + "def f():\n    precompiled_user_op([x], 'x.so')\n",
    ),
    "global import": (
        {},
        GLOBAL + "ipu.nothing()\n",
    ),
    "global import ok": (
        {},
        GLOBAL + "import numpy as np\n" + OFF + GRAPH + RUN,
    ),
    "global rebinds": ({}, WHOLE + "def f():\n    global ipu\n    ipu = [1]\nf()\nipu.sort()\n"),
    "global rebinds in def": ({}, WHOLE + "def f():\n    global ipu\n    ipu = [1]\n    ipu.sort()\nf()\n"),
    "match": ({}, WHOLE + "match [[1]]:\n    case [ipu]:\n        ipu.sort()\n"),
    "match def": (
        {},
        WHOLE
        + """
def f(value):
    match value:
        case [ipu]:
            ipu.sort()
        case {"a": 1, **tf}:
            tf.items()
        case [1, *np]:
            np.sort()
f([[1]])
f({"a": 1})
f([1, 2])
""",
    ),
    "match beside": (
        {"helper.py": "match [1]:\n    case [first]:\n        pass\n    case [*rest]:\n        pass\n"},
        WHOLE + "from helper import first\n",
    ),
    "tf.python": ({}, "import tensorflow as tf\ntf.python.ipu.utils\n"),
    "tf.python after import": ({}, "import tensorflow as tf\nfrom tensorflow.python import ipu\ntf.python.ipu.utils\n"),
    "tf.compiler": ({}, "import tensorflow as tf\ntf.compiler.plugin.poplar\n"),
    "helper uncalled": ({"helper.py": OTHER}, USER),
    "helper called by call": (
        {"helper.py": HELPER + "def third():\n    other()\ndef other():\n    ipu.nothing()\n"},
        USER + "import helper\nhelper.third()\n",
    ),
    "helper uncalled by call": (
        {"helper.py": HELPER + "def third():\n    other()\ndef other():\n    ipu.nothing()\n"},
        USER,
    ),
    "uncalled class": ({}, WHOLE + "class A:\n    def f(self):\n        ipu.nothing()\n"),
    "called class": ({}, WHOLE + "class A:\n    def __init__(self):\n        ipu.nothing()\nA()\n"),
    "uncalled function": ({}, UNCALLED),
    "uncalled default": ({}, WHOLE + "def f(a=ipu.nothing):\n    return a\n"),
    "decorated": ({}, WHOLE + "def run(f):\n    return f()\n@run\ndef f():\n    ipu.nothing()\n"),
    "called main": ({}, UNCALLED + "if __name__ == '__main__':\n    f()\n"),
    "cond": ({}, "import tensorflow as tf\ntf.cond(tf.constant(True), lambda: 1, lambda: 2, strict=True)\n"),
    "cond v1": ({}, "import tensorflow.compat.v1 as tf\ntf.cond(tf.constant(True), fn1=lambda: 1, fn2=lambda: 2)\n"),
    "cond v1 bad": (
        {},
        "import tensorflow.compat.v1 as tf\ntf.cond(tf.constant(True), lambda: 1, lambda: 2, swap=True)\n",
    ),
    "graph open in a function": (
        {},
        BEGIN + "def main():\n    with tf.Graph().as_default():\n" + indented(indented(GRAPH + RUN)) + "main()\n",
    ),
    "graph open in an exit stack": (
        {},
        BEGIN
        + "import contextlib\nstack = contextlib.ExitStack()\nstack.enter_context(tf.Graph().as_default())\n"
        + GRAPH
        + RUN,
    ),
    "graph closed beside": (
        {"on.py": BEGIN + CLOSED},
        BEGIN + "import on\nwith tf.Graph().as_default():\n    pass\n" + GRAPH + RUN,
    ),
    "graph around an import": (
        {"graphs.py": BEGIN + GRAPH + RUN},
        BEGIN + "with tf.Graph().as_default():\n    import graphs\n",
    ),
    "session closed, mode off": (
        {},
        BEGIN + OFF + GRAPH + "with tf.Session().as_default() as session:\n    pass\ntf.placeholder(tf.float32)\n",
    ),
    "bare placeholder": ({}, "from tensorflow.compat.v1 import placeholder\nplaceholder('float32')\n"),
    "removed class as base": (
        {},
        WHOLE + "from tensorflow.python.ipu.keras import Model\nclass A(Model):\n    pass\nA()\n",
    ),
    "main of tf.app": (
        {},
        "import sys\n"
        + WHOLE
        + "sys.argv = sys.argv[:1]\ndef main(_):\n    ipu.nothing()\nif __name__ == '__main__':\n    tf.app.run()\n",
    ),
    "absent module, uncalled": ({}, WHOLE + "def f():\n    import nowhere\n"),
    "absent module, called": ({}, WHOLE + "def f():\n    import nowhere\nf()\n"),
    "called by computed name": ({}, UNCALLED + "globals()[chr(102)]()\n"),
    "called in a table": ({}, UNCALLED + "{'f': f}['f']()\n"),
    "default on the line of a body": ({}, WHOLE + "def f(a=ipu.nothing): return a\n"),
    "calls itself alone": ({}, UNCALLED + "    f()\n"),
    "TYPE_CHECKING, not": ({}, WHOLE + "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    ipu.nothing\n"),
    "cond by position": ({}, "import tensorflow as tf\ntf.cond(tf.constant(True), lambda: 1, lambda: 2, 'a', 'b')\n"),
    "cond by position, all": ({}, "import tensorflow as tf\ntf.cond(tf.constant(True), lambda: 1, lambda: 2, 'a')\n"),
    "cond by a list": ({}, "import tensorflow as tf\ntf.cond(*[tf.constant(True), lambda: 1, lambda: 2])\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_end_as_the_check_says(name: str, tmp_path: Path) -> None:
    files, program = PROGRAMS[name]
    found, end = check_and_run(tmp_path, {**files, "main.py": program}, "main.py")
    assert bool(found) == bool(end), (found, end)
