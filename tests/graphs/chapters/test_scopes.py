"""The program of section 18.3."""

from __future__ import annotations

import numpy as np
from tensorflow.python import ipu

from tests.graphs.chapters.programs import run, v1


def test_outside_compilation() -> None:
    names = run("18_3_outside_compilation", **vars(ipu.scopes))
    a = v1.placeholder(np.float32, [2, 3])
    (result,) = ipu.ipu_compiler.compile(names["my_net"], [a])
    value = np.float32([[1, 2, -3], [0, 0.5, 1e3]])
    with v1.Session() as session:
        np.testing.assert_array_equal(session.run(result, {a: value}), value * value + (value * value + 2))
