"""Fast math of the configuration reaches the numbers of a tf.function on the device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from tests.config.test_tree import write

X = np.linspace(1, 2, 60, dtype=np.float32).reshape(6, 10)
V = np.full((6, 1), 49.0, np.float32)


@pytest.mark.parametrize("option", [None, "optimizations.math.fast", "optimizations.enable_fast_math"])
def test_divisions_by_fewer_numbers_become_multiplications(option: str | None) -> None:
    config = IPUConfig()
    if option is not None:
        write(config, option, True)
    config.configure_ipu_system()
    divide = tf.function(lambda x, v: x / v, jit_compile=True)
    found = IPUStrategy().run(divide, (tf.constant(X), tf.constant(V))).numpy()
    fast = X * (np.float32(1) / V)
    assert not np.array_equal(fast, X / V)
    np.testing.assert_array_equal(found, X / V if option is None else fast)
