"""Notes under errors that end programs of TensorFlow 1: which two lines to put first."""

from __future__ import annotations

import functools
import re
import sys
from types import TracebackType

NOTE = (
    "A program of TensorFlow 1 has two lines first: `import tensorflow.compat.v1 as tf` and "
    "`tf.disable_v2_behavior()`; `python -m ipu.run --tf1 program.py` runs it unchanged."
)
OF_EAGER_MODE = re.compile(
    "is not compatible with eager execution|not supported when eager execution is enabled|The Session graph is empty"
    "|should be a function when eager execution is enabled"
)
MISSING = re.compile(r"module 'tensorflow' has no attribute '(\w+)'")


def is_of_version_1(error: BaseException) -> bool:
    """Whether TensorFlow raised an error since a name is of its version 1 alone, or since eager mode is on."""
    text = str(error)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or NOTE in text:
        return False
    missing = MISSING.match(text)
    if missing is not None:
        return hasattr(tensorflow.compat.v1, missing[1])
    return bool(OF_EAGER_MODE.search(text)) and bool(tensorflow.executing_eagerly())


@functools.cache
def note_version_1() -> None:
    """Extends `sys.excepthook`, which prints the error that ends a program, once."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Exception) and is_of_version_1(error):
            error.add_note(NOTE)
        shown(kind, error, trace)

    sys.excepthook = hook
