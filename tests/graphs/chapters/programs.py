"""Programs of the chapters 18.2 to 18.16 of Graphcore's Python API, as they stand there.

A line that is no Python there, or that leaves out what a program needs, is completed under a comment. Names in capitals
stand for the manual's larger numbers and for folders. What the manual takes as imported is in `NAMES`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import array_ops, variable_scope, variables
from tensorflow.python.training import gradient_descent

v1 = tf.compat.v1
NAMES = {
    **{"tf": v1, "np": np, "ipu": ipu, "dtypes": dtypes, "ops": ops, "array_ops": array_ops},
    **{"variable_scope": variable_scope, "variables": variables, "gradient_descent": gradient_descent},
    **{name: getattr(ipu, name) for name in ("ipu_compiler", "ipu_infeed_queue", "ipu_outfeed_queue", "loops")},
    **{name: getattr(ipu, name) for name in ("pipelining_ops", "internal_ops", "scopes", "utils")},
}


def run(name: str, keras: str = "keras", **given: Any) -> dict[str, Any]:
    """The names that a program has defined when it ends, with the names that it was given."""
    path = Path(__file__).with_name(f"{name}.txt")
    source = path.read_text().replace("import tensorflow as tf\n", "import tensorflow.compat.v1 as tf\n")
    source = source.replace("from tensorflow import keras\n", f"import {keras} as keras\n")
    names = {"__name__": "__main__", **NAMES, **given}
    exec(compile(source, path, "exec"), names)
    return names
