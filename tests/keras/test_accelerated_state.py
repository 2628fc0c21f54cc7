"""State that configurations and weights do not say, which copies keep or lack, and functions of a program's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import ipu
from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from keras_ext.training import StepFunction
from tests.keras.accelerated import assert_same_fit, both
from tests.keras.helpers import CLASSES, FEATURES, Kit, both_frameworks, data, tf_keras_only


@both_frameworks
def test_a_copy_normalizes_as_the_adapted_model(kit: Kit) -> None:
    x, y = data(40)
    layers = kit.keras.layers
    normalization = layers.Normalization()
    normalization.adapt(7 * x + 3)
    plain = kit.compiled(kit.keras.Sequential([layers.Input((FEATURES,)), normalization, layers.Dense(CLASSES)]))
    fast = ipu.accelerate(plain)
    assert fast is not plain
    np.testing.assert_allclose(fast.predict(x, verbose=0), plain.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    assert_same_fit(plain, fast, x=x, y=y, epochs=2)


def attribute(model: Any) -> None:
    model.scaled.scale = 3.0


def step(model: Any) -> None:
    original = model.train_step
    model.train_step = lambda batch: original(batch)


def number_in_the_model(model: Any) -> None:
    model.temperature = 2


def nothing(model: Any) -> None:
    pass


@pytest.mark.sample(8)
@pytest.mark.parametrize("change", [attribute, step, number_in_the_model, nothing])
def test_a_model_whose_attributes_a_copy_would_lose_stays_plain(
    kit: Kit, change: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    class Scaled(kit.keras.layers.Layer):
        scale = 1.0

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale

    class Holding(kit.Subclassed):
        def __init__(self, **named: Any) -> None:
            super().__init__()
            self.scaled = Scaled()

        def call(self, inputs: Any, training: bool = False) -> Any:
            return super().call(self.scaled(inputs))

        def get_config(self) -> Any:
            return {}

    x, y = data(40)
    plain = kit.compiled(Holding())
    plain(x[:2])
    change(plain)
    plain.fit(x, y, verbose=0)
    fast = ipu.accelerate(plain)
    assert (fast is plain) == (change is not nothing)
    assert ("stays with plain Keras" in caplog.text) == (change is not nothing)


class Box:
    """An object of the program's that is no layer."""

    def __init__(self, layer: Any = None) -> None:
        self.factor, self.items, self.layer = 1.0, [1.0], layer


class Factor:
    """A factor in a slot."""

    __slots__ = ("__factor",)

    def __init__(self, factor: float) -> None:
        self.__factor = factor

    def times(self, value: Any) -> Any:
        return self.__factor * value


def times(factor: float) -> Callable[[Any], Any]:
    """A function that takes its factor from outside."""
    return lambda value: factor * value


MADE: dict[str, Callable[[float], Any]] = {
    "variable of a function": times,
    "variable of functions in a list": lambda factor: [times(1.0), times(factor)],
    "default of an argument": lambda factor: lambda value, factor=factor: factor * value,
    "object of a method": lambda factor: Factor(factor).times,
    "slot of an object": Factor,
    "tf.function": lambda factor: tf.function(times(factor)),
    "class": lambda factor: (int, float)[factor > 1],
    "function of NumPy": lambda factor: (np.sin, np.cos)[factor > 1],
    "dtype": lambda factor: (tf.int32, tf.float32)[factor > 1],
    "shape": lambda factor: tf.TensorShape([int(factor)]),
    "initializer": lambda factor: keras.initializers.Constant(factor),
    "loss": keras.losses.Huber,
    "loss of tf_keras": tf_keras.losses.Huber,
    "random generator": lambda factor: tf.random.Generator.from_seed(int(factor)),
}
"""Objects of one kind that differ where their numbers do."""


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda model, layer: None,
    "private number": lambda model, layer: setattr(layer, "_scale", 2.0),
    "array": lambda model, layer: layer.table.__setitem__(0, 5.0),
    "another array": lambda model, layer: setattr(layer, "table", np.zeros(FEATURES, np.float32)),
    "list": lambda model, layer: layer._numbers.__setitem__(0, 3.0),
    "dictionary": lambda model, layer: layer.options.__setitem__("shift", 5.0),
    "function": lambda model, layer: setattr(layer, "_function", lambda value: 2 * value),
    "object": lambda model, layer: setattr(layer._box, "factor", 4.0),
    "list of an object": lambda model, layer: layer._box.items.append(2.0),
    "variable": lambda model, layer: layer._hidden[0].assign(4.0),
    "tensor": lambda model, layer: setattr(layer, "_tensor", tf.constant([3.0])),
    "layer of an object": lambda model, layer: setattr(layer, "_box", Box(model.layers[-1])),
    "optimizer": lambda model, layer: setattr(model.optimizer, "_factor", 3.0),
    "unused attribute": lambda model, layer: setattr(layer, "_other", 3.0),
    **{name: lambda model, layer, name=name: layer.made.__setitem__(name, MADE[name](3.0)) for name in MADE},
}


@pytest.mark.sample(14)
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_stays_plain_whose_own_classes_have_state_that_a_copy_would_lose(kit: Kit, change: str) -> None:
    keras = kit.keras
    register = (keras.saving if kit.is_keras3 else keras.utils).register_keras_serializable("state")

    @register
    class Table(keras.layers.Layer):
        def __init__(self, **named: Any) -> None:
            super().__init__(**named)
            self._scale, self.table, self._numbers = 1.0, np.ones(FEATURES, np.float32), [1.0]
            self._function, self._box, self.options = lambda value: value, Box(), {"shift": 1.0}
            self._hidden, self._tensor = (tf.Variable(1.0, trainable=False),), tf.constant([1.0])
            self.made = {name: make(1.0) for name, make in MADE.items()}

        def call(self, inputs: Any) -> Any:
            scale = self._scale * self.table * self._box.factor * self._hidden[0] * self._tensor
            product = self.made["variable of a function"](self._function(inputs) * scale)
            return product + self._numbers[0] + self.options["shift"]

    @register
    class Scaled(keras.optimizers.SGD):
        _factor = 1.0

        def update_step(self, gradient: Any, variable: Any, *rate: Any) -> None:
            super().update_step(self._factor * gradient, variable, *rate)

    x, y = data(40)
    model = keras.Sequential([keras.layers.Input((FEATURES,)), Table(), keras.layers.Dense(CLASSES)])
    model.compile(Scaled(learning_rate=0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, verbose=0)
    CHANGES[change](model, model.layers[0])
    fast = ipu.accelerate(model)
    kept = change in ("nothing", "unused attribute") or (change == "variable" and not kit.is_keras3)
    assert (fast is model) != kept
    np.testing.assert_allclose(fast.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


@both_frameworks
def test_a_vocabulary_that_was_adapted_is_not_lost(kit: Kit) -> None:
    lookup = kit.keras.layers.IntegerLookup()
    lookup.adapt(np.array([[7], [7], [9]]))
    layers = [kit.keras.layers.Input((1,), dtype="int64"), lookup, kit.keras.layers.Embedding(4, 2)]
    model = kit.keras.Sequential(layers)
    copied, x = ipu.accelerate(model), np.array([[9], [7], [1]])
    np.testing.assert_array_equal(copied.predict(x, verbose=0), model.predict(x, verbose=0))


@both_frameworks
def test_a_model_without_an_optimizer_is_copied(kit: Kit) -> None:
    model, (x, _) = kit.functional(), data(20)
    copied = ipu.accelerate(model)
    assert copied is not model
    np.testing.assert_allclose(copied.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-5)


@pytest.mark.sample(4)
@pytest.mark.parametrize("copied", [True, False])
def test_a_copy_draws_no_random_numbers_of_the_program(kit: Kit, copied: bool) -> None:
    class Uncopied(kit.Subclassed):
        made = 0

        def __init__(self, **named: Any) -> None:
            super().__init__()
            Uncopied.made += 1
            if self.made > 1:
                raise RuntimeError("a second one")

    model = kit.sequential() if copied else Uncopied()
    kit.keras.utils.set_random_seed(5)
    expected = random.random(), np.random.random(), kit.sequential().get_weights()
    kit.keras.utils.set_random_seed(5)
    assert (ipu.accelerate(model) is model) != copied
    drawn = random.random(), np.random.random(), kit.sequential().get_weights()
    assert drawn[:2] == expected[:2]
    for one, other in zip(drawn[2], expected[2], strict=True):
        np.testing.assert_array_equal(one, other)


def own_function(kit: Kit) -> type:
    class Own(kit.keras.Sequential):  # type: ignore[name-defined]
        def make_train_function(self, force: bool = False) -> Any:
            if self.train_function is None or force:

                @tf.function
                def function(iterator: Any) -> Any:
                    x, y = next(iterator)
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(kit.keras.losses.sparse_categorical_crossentropy(y, self(x)))
                    weights = self.trainable_variables
                    self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
                    return {"loss": loss}

                self.train_function = function
            return self.train_function

    return Own


@both_frameworks
def test_a_train_function_of_a_programs_own_gets_each_batch(kit: Kit) -> None:
    """A batch of an iterator of the engine would be a constant in a `tf.function`."""

    def make() -> Any:
        layers = [kit.keras.layers.Input((FEATURES,)), kit.keras.layers.Dense(CLASSES, "softmax")]
        model = kit.compiled(own_function(kit)(layers), metrics=None)
        model.optimizer.build(model.trainable_variables)
        return model

    x, y = data(40)
    plain, fast, acceleration = both(make)
    for _ in range(2):
        assert_same_fit(plain, fast, x=x, y=y, batch_size=8, epochs=2)
    assert_same_fit(plain, fast, x=tf.data.Dataset.from_tensor_slices((x, y)).batch(8))
    fast.evaluate(x, y, verbose=0)
    assert isinstance(fast.test_function, StepFunction)
    assert [each.method for each in acceleration.fallbacks] == ["fit"]
    assert "Own.make_train_function" in acceleration.fallbacks[0].reason
    with IPUStrategy().scope():
        model = make()
    with pytest.raises(UnsupportedOperation, match="Override train_step instead"):
        model.fit(x, y, verbose=0)


@both_frameworks
def test_a_train_function_around_that_of_keras_runs_on_the_engine(kit: Kit) -> None:
    class Counting(kit.keras.Sequential):  # type: ignore[name-defined]
        executions = 0

        def make_train_function(self, force: bool = False) -> Any:
            made = super().make_train_function(force)
            if not isinstance(made, StepFunction):
                return made

            def function(iterator: Any) -> Any:
                self.executions += 1
                return made(iterator)

            self.train_function = function
            return function

    x, y = data(40)
    layers = [kit.keras.layers.Input((FEATURES,)), kit.keras.layers.Dense(CLASSES, "softmax")]
    with ipu.accelerate() as acceleration:
        model = kit.compiled(Counting(layers))
    model.fit(x, y, batch_size=8, verbose=0)
    assert model.executions > 0 and acceleration.fallbacks == ()


@tf_keras_only
def test_a_layer_may_hold_a_model_that_the_first_training_step_builds(kit: Kit) -> None:
    class Block(kit.keras.layers.Layer):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.auxiliary = kit.keras.Sequential([kit.keras.layers.Dense(3, kernel_initializer="ones")])

        def call(self, inputs: Any, training: bool | None = None) -> Any:
            if training:
                self.add_loss(0.1 * tf.reduce_mean(self.auxiliary(inputs) ** 2))
            return inputs

    class Nested(kit.Subclassed):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def call(self, inputs: Any, training: bool | None = None) -> Any:
            return super().call(self.block(inputs, training=training))

    x, y = data(40)

    def make() -> Any:
        model = Nested()
        model(x[:2])
        return kit.compiled(model)

    plain = make()
    with ipu.accelerate() as acceleration:
        fast = make()
    for part in ("hidden", "head"):
        getattr(fast, part).set_weights(getattr(plain, part).get_weights())
    assert_same_fit(plain, fast, x=x, y=y, epochs=2)
    assert acceleration.fallbacks == ()
