"""Floating-point behaviour, configured for models of both Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import FloatingPointException
from ipu._internal.compiler.program import use_definitions
from ipu.config import IPUConfig, StochasticRoundingBehaviour, configure_ipu_system
from ipu.ipu_strategy import IPUStrategy
from ipu.utils import create_ipu_config, reset_ipu_seed, set_floating_point_behaviour_options
from tests.floating_point.configured import configure, slow_learner, targets
from tests.keras.helpers import Kit, data

STEPS = 64


def weights_after(keras: Any, epochs: int = 1, **behaviour: Any) -> np.ndarray:
    configure(**behaviour)
    model = slow_learner(keras)
    x, y = targets(4 * STEPS)
    with IPUStrategy().scope():
        model.fit(x, y, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return np.asarray(model.get_weights()[0])


@pytest.mark.sample(1)
def test_small_updates_move_halves_only_with_stochastic_rounding(keras: Any) -> None:
    """Steps are at most 2**-13, half the distance of neighbours is 2**-11: rounded to nearest nothing moves."""
    stuck = weights_after(keras, esr=False)
    assert (stuck == 1).all()
    moved = weights_after(keras, esr=True).astype(np.float64)
    # In 64 steps w - t shrinks from 2**-6 by (1 - 2**-7)**64; the noise of a mean of 256 weights is far below a tenth.
    expected = 1 + 2.0**-6 * (1 - (1 - 2.0**-7) ** 64)
    assert abs(moved.mean() - expected) < 0.1 * (expected - 1)
    assert np.unique(moved).size > 2


@pytest.mark.sample(1)
def test_the_same_seed_gives_the_same_weights(keras: Any) -> None:
    first, second = weights_after(keras, esr=True), weights_after(keras, esr=True)
    np.testing.assert_array_equal(first, second)
    configure(esr=True)
    model = slow_learner(keras)
    reset_ipu_seed(2)
    with IPUStrategy().scope():
        model.fit(*targets(4 * STEPS), batch_size=4, shuffle=False, verbose=0)
    assert (np.asarray(model.get_weights()[0]) != first).any()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [({}, np.inf), ({"nanoo": True}, np.nan), ({"esr": True}, 65504), ({"esr": True, "nanoo": True}, np.nan)],
    ids=str,
)
def test_overflow(keras: Any, behaviour: dict[str, Any], expected: float) -> None:
    configure(**behaviour)
    with IPUStrategy().scope():
        inputs = keras.Input((3,), dtype="float16")
        model = keras.Model(inputs, keras.layers.Rescaling(300.0, dtype="float16")(inputs))
        result = model.predict(np.array([[300, -300, 1]], np.float16), verbose=0)
    np.testing.assert_array_equal(np.asarray(result), np.array([[expected, -expected, 300]], np.float16))


def divider(kit: Kit) -> Any:
    """A model with a layer "quotient" that divides by the first feature."""
    keras = kit.keras

    class Quotient(keras.layers.Layer):  # type: ignore[name-defined]
        def call(self, inputs: Any) -> Any:
            return inputs / inputs[:, :1]

    with IPUStrategy().scope():
        inputs = keras.Input((5,))
        hidden = Quotient(name="quotient")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(3, "softmax", name="head")(hidden))
        return kit.compiled(model, steps_per_execution=3)


def test_an_exception_names_the_layer_and_leaves_the_model_in_order(kit: Kit) -> None:
    configure(div0=True)
    model = divider(kit)
    x, y = data()
    x[:, 0] = 2
    with IPUStrategy().scope():
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        before = model.get_weights()
        x[6, 0] = 0
        with pytest.raises(FloatingPointException, match="division by zero") as caught:
            model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        assert caught.value.opcode == "divide" and caught.value.step == 1
        assert caught.value.layer == "quotient" and "quotient/" in caught.value.op_name
        for received, expected in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(received, expected)
        x[6, 0] = 2
        history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history
        assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("number", [0, 1])
def test_layers_with_numbers_are_not_mixed_up(keras: Any, number: int) -> None:
    """TensorFlow numbers scopes, too: the engine must take the layer named dense_1, not TensorFlow's scope."""
    configure(oflo=True)
    with IPUStrategy().scope():
        kernels = ["zeros", "zeros"]
        kernels[number] = keras.initializers.Constant(3e38)
        names = ["dense", "dense_1"]
        layers = [keras.layers.Dense(4, name=n, kernel_initializer=k) for n, k in zip(names, kernels, strict=True)]
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        layers[0].set_weights([layers[0].get_weights()[0], np.ones(4, np.float32)])
        with pytest.raises(FloatingPointException) as caught:
            model.predict(np.ones((8, 4), np.float32), verbose=0)
    assert (caught.value.exception, caught.value.opcode, caught.value.layer) == ("oflo", "dot", names[number])


@pytest.mark.sample(1)
def test_another_configuration_compiles_again(kit: Kit) -> None:
    configure()
    model = divider(kit)
    x, y = data()
    x[6, 0] = 0
    with IPUStrategy().scope():
        assert not np.isfinite(model.predict(x, batch_size=4, verbose=0)).all()
        configure(div0=True)
        with pytest.raises(ArithmeticError):
            model.predict(x, batch_size=4, verbose=0)
        configure(oflo=True)
        assert not np.isfinite(model.predict(x, batch_size=4, verbose=0)).all()


@pytest.mark.sample(1)
def test_definitions_alone_behave_alike(kit: Kit) -> None:
    configure(div0=True)
    with use_definitions():
        model = divider(kit)
        x, y = data()
        x[6, 0] = 0
        with IPUStrategy().scope(), pytest.raises(FloatingPointException, match="division by zero"):
            model.fit(x, y, batch_size=4, shuffle=False, verbose=0)


@pytest.mark.sample(1)
def test_ordinary_training_raises_nothing_and_is_the_same(kit: Kit) -> None:
    """Training of a classifier gives the same bits with all exceptions on as without."""
    x, y = data()
    results = []
    for behaviour in ({}, {"inv": True, "div0": True, "oflo": True}):
        configure(**behaviour)
        kit.keras.utils.set_random_seed(3)
        model = kit.ipu_model()
        with IPUStrategy().scope():
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        results.append(model.get_weights())
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "behaviour", [StochasticRoundingBehaviour.ON, StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY], ids=str
)
def test_replicas_stay_the_same(keras: Any, behaviour: StochasticRoundingBehaviour) -> None:
    """Weights are kept once, so replicas cannot drift apart by rounding; the weights move as on one replica."""
    configure(ipus=2, esr=behaviour)
    model = slow_learner(keras)
    x, y = targets(8 * STEPS)
    with IPUStrategy().scope():
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    moved = np.asarray(model.get_weights()[0]).astype(np.float64)
    # The gradients of replicas are summed.
    expected = 1 + 2.0**-6 * (1 - (1 - 2.0**-6) ** 64)
    assert abs(moved.mean() - expected) < 0.1 * (expected - 1)


def test_the_older_function_and_set_all() -> None:
    from ipu._internal.config.system import current_system

    options = set_floating_point_behaviour_options(create_ipu_config(), inv=False, nanoo=False)
    configure_ipu_system(options)
    assert current_system().floating_point.exceptions == {"div0", "oflo"}
    assert current_system().floating_point.overflow == "clip"
    config = IPUConfig()
    config.floating_point_behaviour.set_all = True
    config.configure_ipu_system()
    assert current_system().floating_point.exceptions == {"inv", "div0", "oflo"}
    assert current_system().floating_point.overflow == "nan"
    assert current_system().floating_point.stochastic_rounding == "on"
