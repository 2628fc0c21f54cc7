"""Plain models beside accelerated ones."""

from __future__ import annotations

from typing import Any

import numpy as np

import ipu


def both(make: Any) -> tuple[Any, Any, Any]:
    """A plain model and an accelerated one with its weights."""
    plain = make()
    with ipu.accelerate() as acceleration:
        fast = make()
    fast.set_weights(plain.get_weights())
    return plain, fast, acceleration


def assert_same_fit(plain: Any, fast: Any, **arguments: Any) -> None:
    histories = [model.fit(verbose=0, shuffle=False, **arguments).history for model in (plain, fast)]
    assert histories[0].keys() == histories[1].keys()
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=2e-5, atol=1e-6)
    for expected, actual in zip(plain.get_weights(), fast.get_weights(), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)
