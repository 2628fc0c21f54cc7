"""CategoryEncoding in models, beside its definition; XLA alone refuses it, as its shape depends on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, both_frameworks

CATEGORIES = 7
OUTSIDE = (-1, -7, -8, 7, 8, 14, 100)


@both_frameworks
def test_modes(kit: Kit) -> None:
    generator = np.random.default_rng(2)
    many, one = generator.integers(0, CATEGORIES, (6, 4)), generator.integers(0, CATEGORIES, (6, 1))
    weights = generator.random((6, 4), np.float32)
    with IPUStrategy().scope():
        inputs = [kit.keras.Input(each.shape[1:], dtype=each.dtype.name) for each in (many, one, weights)]

        def encoded(mode: str, categories: Any, **named: Any) -> Any:
            return kit.keras.layers.CategoryEncoding(CATEGORIES, mode)(categories, **named)

        outputs = [
            encoded("multi_hot", inputs[0]),
            encoded("one_hot", inputs[1]),
            encoded("count", inputs[0]),
            encoded("count", inputs[0], count_weights=inputs[2]),
        ]
        model = kit.keras.Model(inputs, outputs)
    found = model.predict([many, one, weights], batch_size=3, verbose=0)

    rows = np.eye(CATEGORIES, dtype=np.float32)
    expected = [rows[many].max(1), rows[one[:, 0]], rows[many].sum(1), (rows[many] * weights[..., None]).sum(1)]
    for result, definition in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, definition, rtol=1e-6)


@both_frameworks
@pytest.mark.parametrize("checked", [True, False])
def test_categories_out_of_range_are_refused_as_in_keras(
    kit: Kit, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unchecked values out of range are not counted; Keras 3 does not count too large ones either."""
    monkeypatch.setenv("SOFTWARE_IPU_VALUE_CHECKS", "keras" if checked else "none")
    with IPUStrategy().scope():
        given = kit.keras.Input((3,), dtype="int64")
        encoded = [kit.keras.layers.CategoryEncoding(CATEGORIES, mode)(given) for mode in ("multi_hot", "count")]
        model = kit.keras.Model(given, encoded)
    for outside in OUTSIDE:
        categories = np.array([[3, outside, 6]])
        if checked and (outside < 0 or not kit.is_keras3):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"non-negative|range 0 <= values < num_tokens"):
                model.predict(categories, verbose=0)
            continue
        for result in model.predict(categories, verbose=0):
            np.testing.assert_array_equal(result, [np.eye(CATEGORIES)[3] + np.eye(CATEGORIES)[6]])
