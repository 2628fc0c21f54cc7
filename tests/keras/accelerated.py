"""Plain models beside accelerated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ipu
from tests.keras.helpers import Kit


def both(make: Any) -> tuple[Any, Any, Any]:
    """A plain model and an accelerated one with its weights."""
    plain = make()
    with ipu.accelerate() as acceleration:
        fast = make()
    fast.set_weights(plain.get_weights())
    return plain, fast, acceleration


def in_float64(kit: Kit, make: Callable[[], Any], like: Any) -> Any:
    """A plain model that computes in float64, with the weights of another."""
    backend, policies = kit.keras.backend, kit.keras.mixed_precision
    backend.set_floatx("float64")
    policies.set_global_policy("float64")
    try:
        model = make()
    finally:
        backend.set_floatx("float32")
        policies.set_global_policy("float32")
    model.set_weights(like.get_weights())
    return model


def assert_same_fit(plain: Any, fast: Any, exact: Any = None, **arguments: Any) -> None:
    """Asserts that both fit alike; with an exact model, weights are as near to its weights as plain Keras' are."""
    models = [each for each in (plain, fast, exact) if each is not None]
    histories = [model.fit(verbose=0, shuffle=False, **arguments).history for model in models]
    assert histories[0].keys() == histories[1].keys()
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=2e-5, atol=1e-6)
    expected, actual, truth = (model.get_weights() for model in (plain, fast, exact or plain))
    errors = [float(np.abs(one - other).max()) for one, other in zip(expected, truth, strict=True)]
    for one, other in zip(actual, truth, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6 + 3 * max(errors))
