"""The program of section 18.15: an optimizer that changes gradients."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from tensorflow.python import ipu

from tests.graphs.chapters.programs import run, v1


def test_map_gradient() -> None:
    this = SimpleNamespace(cached_session=v1.Session)
    names = run("18_15_map_gradient", self=this, map_gradient_optimizer=ipu.optimizers, WEIGHT_DECAY=0.01)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        pairs = session.run(names["grads_and_vars"])
    np.testing.assert_allclose([gradient[0] for gradient, _ in pairs], [5.01, 4.02, 3.03], rtol=1e-6)
    np.testing.assert_array_equal([variable[0] for _, variable in pairs], [1, 2, 3])
