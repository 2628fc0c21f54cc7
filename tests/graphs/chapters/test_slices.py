"""The programs of section 18.14.16, which copy slices of sequences; the results are those of the manual."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.chapters.programs import run, v1

ROWS = {"slice": [2, 3, 0, 0, 1, 2], "pack": [0, 1, 2, 3, 0, 0], "unpack": [2, 3, 1, 2]}


@pytest.mark.parametrize("name", ROWS)
def test_slices(name: str) -> None:
    on_host = run(f"18_14_16_{name}")["dst"]
    (compiled,) = ipu.ipu_compiler.compile(lambda: tf.convert_to_tensor(run(f"18_14_16_{name}")["dst"]))
    with v1.Session() as session:
        for result in session.run([on_host, compiled]):
            np.testing.assert_array_equal(result, np.repeat(np.float32(ROWS[name])[:, None], 6, 1))
