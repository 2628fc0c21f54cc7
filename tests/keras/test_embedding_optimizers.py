"""Embeddings under every optimizer of either Keras, with their options, and under optimizers of users."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from engine.errors import ConfigurationError
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.indexed_slices import VARIABLE
from tests.keras.helpers import KITS, Kit, keras3_only, tf_keras_only
from tests.keras.test_embeddings import TARGETS, TOKENS, pooled, same_as_keras, shared

QUICK = {"SGD", "Adagrad", "Adam", "Ftrl"}
NOT_CONCRETE = {"Optimizer", "OptimizerMap", "LossScaleOptimizer", "MultiOptimizer"}


def optimizers_of(kit: Kit, module: str = "") -> list[str]:
    family = getattr(kit.keras.optimizers, module) if module else kit.keras.optimizers
    return sorted(n for n in dir(family) if isinstance(getattr(family, n), type) and n not in NOT_CONCRETE)


ALL = [
    pytest.param(kit, name, marks=[] if name in QUICK else [pytest.mark.slow], id=f"{kit}-{name}")
    for kit in KITS
    for name in optimizers_of(KITS[kit])
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kit", "name"), ALL, indirect=["kit"])
def test_every_optimizer(kit: Kit, name: str) -> None:
    rate = 1.0 if name == "Adadelta" else 0.02
    same_as_keras(kit, shared, lambda: getattr(kit.keras.optimizers, name)(rate))


@tf_keras_only
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name",
    ["SGD", "Adamax", *(pytest.param(n, marks=pytest.mark.slow) for n in optimizers_of(KITS["tf_keras"], "legacy"))],
)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "centered": True}])
def test_legacy_optimizers(kit: Kit, name: str, options: dict[str, Any]) -> None:
    """Rows that no batch names keep their state, under momentum and some other options."""
    legacy = getattr(tf_keras.optimizers.legacy, name)
    known = {key: value for key, value in options.items() if key in inspect.signature(legacy).parameters}
    if len(known) < min(len(options), 2):
        pytest.skip("It has no such options.")
    same_as_keras(kit, pooled, lambda: legacy(0.02 if name != "Adadelta" else 1.0, **known))


OPTIONS: dict[str, dict[str, Any]] = {
    "weight decay": {"weight_decay": 0.1},
    "clipnorm": {"clipnorm": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.01},
    "moving average": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    "accumulated": {"gradient_accumulation_steps": 2},
    "scaled": {"loss_scale_factor": 8.0},
}
TF_KERAS_LACKS = {"accumulated", "scaled"}
KINDS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adagrad": {"initial_accumulator_value": 0.0},
    "Adam": {"amsgrad": True},
    "RMSprop": {"centered": True, "momentum": 0.9, "rho": 0.99},
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("option", OPTIONS)
def test_options(kit: Kit, option: str, name: str) -> None:
    if option in TF_KERAS_LACKS and not kit.is_keras3:
        pytest.skip("It has no such option.")
    if option == "scaled":  # plain Keras 3 cannot divide IndexedSlices by a number
        return same_as_keras(kit, pooled, lambda: kit.keras.optimizers.SGD(0.5, **OPTIONS[option]), prepare=make_dense)
    same_as_keras(kit, pooled, lambda: getattr(kit.keras.optimizers, name)(0.05, **KINDS[name], **OPTIONS[option]))


def make_dense(optimizer: Any) -> None:
    """Makes an optimizer of Keras 3 update with dense tensors, after clipping IndexedSlices."""
    plain, apply = optimizer._clip_gradients, optimizer.apply

    def dense(gradients: Any) -> list[Any]:
        return [tf.convert_to_tensor(each) for each in gradients]

    object.__setattr__(optimizer, "_clip_gradients", lambda gradients: dense(plain(gradients)))
    if optimizer.loss_scale_factor:
        object.__setattr__(optimizer, "apply", lambda gradients, variables=None: apply(dense(gradients), variables))


@keras3_only
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("option", [{}, {"clipvalue": 0.01}])
def test_dense_sums_by_choice(kit: Kit, name: str, option: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are squared: gradients of 3 and 4 for the same row give 49, not 25."""
    monkeypatch.setenv(VARIABLE, "dense")
    make = getattr(kit.keras.optimizers, name)
    same_as_keras(kit, shared, lambda: make(0.05, **KINDS[name], **option), prepare=make_dense)


@keras3_only
def test_unknown_choices_are_refused(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sums")
    with IPUStrategy().scope():
        model = pooled(kit)
        model.compile("adam", "mse")
    with pytest.raises(ConfigurationError, match="'sums'"):
        model.fit(TOKENS[0], TARGETS, verbose=0)


@keras3_only
def test_squares_of_rows_that_a_batch_names_twice(kit: Kit) -> None:
    """Adam's velocity is (1 - beta_2) times 9 + 16 for gradients of 3 and 4 of one row."""
    with IPUStrategy().scope():
        tokens = kit.keras.layers.Input((2,), dtype="int32")
        model = kit.keras.Model(tokens, kit.keras.layers.Embedding(3, 1, embeddings_initializer="zeros")(tokens))
        model.compile(kit.keras.optimizers.Adam(), lambda y, predicted: tf.reduce_sum(y * predicted))
    model.train_on_batch(np.array([[1, 1]]), np.array([[[3.0], [4.0]]]))
    np.testing.assert_allclose(model.optimizer._velocities[0].numpy()[:, 0], [0, 0.025, 0], rtol=1e-5)


def users_optimizer(kit: Kit) -> type:
    """An optimizer that reads IndexedSlices, and reads and writes only the rows that they name."""
    base = kit.keras.optimizers.Optimizer

    class ByRows(base):  # type: ignore[misc, valid-type]
        def __init__(self, rate: float) -> None:
            super().__init__(**({"learning_rate": rate} if kit.is_keras3 else {"name": "by_rows"}))
            if not kit.is_keras3:
                self._learning_rate = self._build_learning_rate(rate)
            self.rate, self.sums = rate, {}

        def build(self, variables: Any) -> None:
            if not self.sums:
                super().build(variables)
                for each in variables:
                    slot = self.add_variable_from_reference(each, "sum")
                    self.sums[self._var_key(each)] = getattr(slot, "value", slot) if kit.is_keras3 else slot

        def update_step(self, gradient: Any, variable: Any, *_: Any) -> None:
            sums = self.sums[self._var_key(variable)]
            if not isinstance(gradient, tf.IndexedSlices):
                return variable.assign_sub(self.rate * gradient)
            ids, values = gradient.indices, gradient.values
            sums.scatter_add(tf.IndexedSlices(tf.abs(values), ids))
            step = self.rate * values / (tf.gather(sums, ids) + 1e-3)
            return variable.scatter_sub(tf.IndexedSlices(step, ids))

    return ByRows


def test_users_optimizers_take_indexed_slices(kit: Kit) -> None:
    kind = users_optimizer(kit)
    same_as_keras(kit, pooled, lambda: kind(0.05))
