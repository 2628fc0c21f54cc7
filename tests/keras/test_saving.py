"""Options and weights through every way of saving, in a strategy's scope and outside."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext import extensions
from keras_ext.errors import IncompleteConfig
from keras_ext.extension import options_of
from tests.keras.helpers import CLASSES, FEATURES, Kit, data

# Keras 3 hands its variables to NumPy in a way that NumPy 2 has deprecated.
X, Y = data()
OPTIONS = {
    "asynchronous_callbacks": True,
    "infeed_kwargs": {"prefetch_depth": 7},
    "outfeed_kwargs": {"buffer_depth": 2},
}


def with_options(model: Any) -> Any:
    model.set_asynchronous_callbacks(True)
    model.set_infeed_queue_options(prefetch_depth=np.int64(7))
    model.set_outfeed_queue_options(buffer_depth=2)
    return model


def trained(kit: Kit, build: Callable[[], Any]) -> Any:
    model = with_options(kit.ipu_model(build))
    model.fit(X, Y, batch_size=8, verbose=0)
    return model


def configured(kit: Kit) -> type:
    """A registered subclass whose config has an additional argument."""
    layers, register = kit.keras.layers, kit.keras.utils.register_keras_serializable

    class Configured(kit.keras.Model):  # type: ignore[name-defined, misc]
        def __init__(self, units: int = 4, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.units = units
            self.hidden = layers.Dense(units, "sigmoid")
            self.head = layers.Dense(CLASSES, "softmax")

        def call(self, inputs: Any) -> Any:
            return self.head(self.hidden(inputs))

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "units": self.units}

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Any:
            return cls(**config)

    return register("tests")(Configured)


@pytest.fixture(params=["sequential", "functional", "configured"])
def model(request: pytest.FixtureRequest, kit: Kit) -> Any:
    build = configured(kit) if request.param == "configured" else getattr(kit, request.param)
    return trained(kit, build)


def formats(kit: Kit) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "model.keras", {}
    yield "model.h5", {}
    if not kit.is_keras3:
        yield "saved_model", {"save_format": "tf"}


@pytest.mark.sample(2)
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_options_come_back_in_a_scope_and_are_ignored_outside(kit: Kit, model: Any, tmp_path: Path) -> None:
    expected = model.predict(X, verbose=0)
    for name, arguments in formats(kit):
        if name.endswith("h5") and type(model).__name__ == "Configured":
            continue  # neither Keras saves subclassed models in this format
        path = tmp_path / name
        model.save(str(path), **arguments)
        with IPUStrategy().scope():
            loaded = kit.keras.models.load_model(str(path))
        assert options_of(loaded) == OPTIONS
        np.testing.assert_array_equal(loaded.predict(X, verbose=0), expected)
        plain = kit.keras.models.load_model(str(path))
        assert not hasattr(plain, "set_asynchronous_callbacks")
        assert not OPTIONS.keys() & plain.get_config().keys()
        np.testing.assert_allclose(plain.predict(X, verbose=0), expected, atol=1e-6)


def test_configs_and_clones(kit: Kit, model: Any) -> None:
    config = model.get_config()
    assert {name: config[name] for name in OPTIONS} == OPTIONS
    assert type(model).from_config(config).get_config().keys() == config.keys() - OPTIONS.keys()
    with IPUStrategy().scope():
        assert options_of(type(model).from_config(config)) == OPTIONS
        assert options_of(kit.keras.models.clone_model(model)) == OPTIONS
        if type(model).__name__ != "Configured":  # tf_keras does not find registered classes in its JSON
            assert options_of(kit.keras.models.model_from_json(model.to_json())) == OPTIONS
    assert not hasattr(kit.keras.models.clone_model(model), "set_asynchronous_callbacks")


def test_models_without_options_have_the_plain_config(kit: Kit) -> None:
    kit.keras.utils.set_random_seed(1)
    plain = kit.sequential().get_config()
    with IPUStrategy().scope():
        assert kit.sequential().get_config().keys() == plain.keys()


def test_pickling_keeps_options(kit: Kit) -> None:
    model = trained(kit, kit.sequential)
    with IPUStrategy().scope():
        copy = pickle.loads(pickle.dumps(model))
    assert options_of(copy) == OPTIONS
    np.testing.assert_array_equal(copy.predict(X, verbose=0), model.predict(X, verbose=0))


def test_weights_between_the_strategy_and_plain_keras(kit: Kit, tmp_path: Path) -> None:
    model, plain = trained(kit, kit.functional), kit.compiled(kit.functional())
    plain.fit(X, Y, batch_size=8, verbose=0)  # makes the optimizer's variables, which the file holds too
    model.save_weights(str(tmp_path / "model.weights.h5"))
    plain.load_weights(str(tmp_path / "model.weights.h5"))
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    plain.fit(X, Y, batch_size=8, verbose=0)
    plain.save_weights(str(tmp_path / "plain.weights.h5"))
    model.load_weights(str(tmp_path / "plain.weights.h5"))
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_export_serves_the_trained_weights(kit: Kit, tmp_path: Path) -> None:
    model = trained(kit, kit.sequential)
    if kit.is_keras3:
        model.export(str(tmp_path / "export"), verbose=False)
    else:
        model.export(str(tmp_path / "export"))
    artifact = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(artifact.serve(X), model.predict(X, verbose=0), atol=1e-6)


def test_a_subclass_that_drops_the_options_is_told(kit: Kit, tmp_path: Path) -> None:
    base = configured(kit)
    forgetful = type("Forgetful", (base,), {"get_config": lambda self: {"units": self.units}})
    model = trained(kit, forgetful)
    with pytest.raises(IncompleteConfig, match="asynchronous_callbacks.*super") as caught:
        model.save(str(tmp_path / "model.keras"))
    assert isinstance(caught.value, RuntimeError)
    model.set_asynchronous_callbacks(False)


def test_options_that_cannot_be_saved_are_named_once(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unsaved: ClassVar[tuple[str, ...]] = ("callable_option",)
    monkeypatch.setattr(extensions.SequentialExtension, "UNSAVED", unsaved, raising=False)
    model = kit.ipu_model()
    options_of(model)["callable_option"] = {"dtype": "any"}
    with caplog.at_level(logging.INFO, "ipu"):
        assert "callable_option" not in model.get_config()
        model.get_config()
    told = [record.getMessage() for record in caplog.records if "callable_option" in record.getMessage()]
    assert len(told) == 1
    assert "Set them again" in told[0]


def test_nested_models_keep_their_options(kit: Kit, tmp_path: Path) -> None:
    with IPUStrategy().scope():
        inner = with_options(kit.functional())
        inputs = kit.keras.Input((FEATURES,))
        outer = kit.compiled(kit.keras.Model(inputs, inner(inputs)))
    outer.fit(X, Y, verbose=0)
    outer.save(str(tmp_path / "model.keras"))
    with IPUStrategy().scope():
        loaded = kit.keras.models.load_model(str(tmp_path / "model.keras"))
    assert options_of(loaded) == {}
    assert options_of(loaded.get_layer(inner.name)) == OPTIONS
