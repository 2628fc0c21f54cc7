"""Models have the documented methods with their names; removed names raise the documented texts."""

from __future__ import annotations

import importlib
from typing import Any

import keras
import pytest
import tf_keras

from engine.errors import ConfigurationError
from ipu.ipu_strategy import IPUStrategy
from keras_ext import queue_options
from keras_ext.callback_options import has_asynchronous_callbacks
from keras_ext.ported import REPLACEMENTS
from tests.keras.helpers import MODELS, Kit, data

X, Y = data()
METHODS = ("set_asynchronous_callbacks", "set_infeed_queue_options", "set_outfeed_queue_options")


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_only_models_of_a_scope_have_the_methods(kit: Kit, kind: str, method: str) -> None:
    outside = getattr(kit, kind)()
    with IPUStrategy().scope():
        inside = getattr(kit, kind)()
        assert not hasattr(outside, method)
    with IPUStrategy(enable_keras_extensions=False).scope():
        assert not hasattr(getattr(kit, kind)(), method)
    assert getattr(inside, method).__self__ is inside
    assert getattr(inside, method).__doc__
    assert not hasattr(type(inside), method)
    with pytest.raises(AttributeError, match="inside an IPUStrategy's scope.*with strategy.scope"):
        getattr(outside, method)
    assert type(inside) in (kit.keras.Sequential, type(kit.functional()), kit.Subclassed)
    assert isinstance(inside, kit.keras.Model)


def test_models_of_a_scope_are_instances_of_the_extensions(kit: Kit) -> None:
    extensions = kit.keras.ipu.extensions
    classes = {
        "sequential": extensions.sequential_extensions.SequentialExtension,
        "functional": extensions.functional_extensions.FunctionalExtension,
        "Subclassed": extensions.model_extensions.ModelExtension,
    }
    for kind, extension in classes.items():
        with IPUStrategy().scope():
            model = getattr(kit, kind)()
        instance_of = {one for one in classes.values() if isinstance(model, one)}
        assert instance_of == {extension, extensions.ModelExtension}
        assert not isinstance(kit.functional(), extension) and not isinstance(extension, extension)
    assert extensions.FunctionalExtension is classes["functional"]


def test_each_model_has_its_own_options(kit: Kit) -> None:
    with IPUStrategy().scope():
        one, other = kit.sequential(), kit.sequential()
    one.set_asynchronous_callbacks(True)
    assert has_asynchronous_callbacks(one)
    assert not has_asynchronous_callbacks(other)
    one.set_asynchronous_callbacks()
    assert not has_asynchronous_callbacks(one)


def test_a_method_of_the_user_s_class_stays(kit: Kit) -> None:
    class Own(kit.Subclassed):  # type: ignore[name-defined, misc]
        def set_infeed_queue_options(self, depth: int) -> int:
            return depth + 1

    with IPUStrategy().scope():
        model = Own()
    assert model.set_infeed_queue_options(2) == 3
    model.set_outfeed_queue_options(buffer_depth=2)


def test_own_steps_still_run(kit: Kit) -> None:
    class Own(kit.Subclassed):  # type: ignore[name-defined, misc]
        def train_step(self, data: Any) -> Any:
            return {**super().train_step(data), "mode": 1.0}

        def test_step(self, data: Any) -> Any:
            return {**super().test_step(data), "mode": 2.0}

        def predict_step(self, data: Any) -> Any:
            return 2 * super().predict_step(data)

    model = kit.ipu_model(Own)
    model.set_asynchronous_callbacks(True)
    assert model.fit(X, Y, verbose=0).history["mode"] == [1.0]
    assert model.evaluate(X, Y, verbose=0, return_dict=True)["mode"] == 2.0
    assert model.predict(X, verbose=0).sum(axis=-1) == pytest.approx(2)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        ("set_infeed_queue_options", {"dataset": 1}, "Keras sets itself"),
        ("set_infeed_queue_options", {"element_spec": 1}, "Keras sets itself"),
        ("set_infeed_queue_options", {"prefetch": 1}, "prefetch_depth"),
        ("set_infeed_queue_options", {"prefetch_depth": -1}, "Nearest legal value: 0"),
        ("set_infeed_queue_options", {"prefetch_depth": 256}, "Nearest legal value: 255"),
        ("set_infeed_queue_options", {"prefetch_depth": 2.0}, "an integer from 0 to 255"),
        ("set_infeed_queue_options", {"prefetch_depth": True}, "an integer"),
        ("set_infeed_queue_options", {"device_ordinal": -1}, "Nearest legal value: 0"),
        ("set_infeed_queue_options", {"device_ordinal": 1}, "that of the model's strategy, 0"),
        ("set_infeed_queue_options", {"optimise_latency": 1}, "True or False"),
        ("set_outfeed_queue_options", {"outfeed_mode": "all"}, "Keras sets itself"),
        ("set_outfeed_queue_options", {"device_ordinal": 0}, "Keras sets itself"),
        ("set_outfeed_queue_options", {"prefetch_depth": 2}, "buffer_depth"),
        ("set_outfeed_queue_options", {"buffer_depth": 0}, "Nearest legal value: 1"),
        ("set_outfeed_queue_options", {"buffer_depth": None}, "an integer"),
        ("set_asynchronous_callbacks", {"asynchronous": 1}, "True or False"),
    ],
)
def test_wrong_options_are_refused_and_change_nothing(
    kit: Kit, method: str, arguments: dict[str, Any], says: str
) -> None:
    model = kit.ipu_model()
    model.set_infeed_queue_options(prefetch_depth=5)
    with pytest.raises(ValueError, match=says) as caught:
        getattr(model, method)(**arguments)
    assert isinstance(caught.value, ConfigurationError)
    assert queue_options.prefetch_depth(model) == 5


@pytest.mark.parametrize("depth", [None, 0])
def test_no_prefetch_depth_means_the_usual_one(kit: Kit, depth: int | None) -> None:
    model = kit.ipu_model()
    model.set_infeed_queue_options(prefetch_depth=depth)
    assert queue_options.prefetch_depth(model) == queue_options.DEFAULT_PREFETCH_DEPTH


def test_the_classes_have_one_home_under_all_names() -> None:
    import ipu

    old = importlib.import_module("tensorflow.python.ipu.keras.extensions")
    for home in (keras.ipu.extensions, tf_keras.ipu.extensions, ipu.keras.extensions):
        assert home is old
    for kind in ("Sequential", "Functional", "Model"):
        for method in METHODS:
            assert callable(getattr(getattr(old, f"{kind}Extension"), method))


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_removed_classes_say_what_to_write(name: str) -> None:
    home = importlib.import_module("tensorflow.python.ipu.keras")
    removed = getattr(home, name)
    subclass = type("MyModel", (removed,), {})
    for kind in (removed, subclass):
        with pytest.raises(RuntimeError, match=rf"ipu\.keras\.{name}.*tensorflow\.keras\.(Model|Sequential)"):
            kind([], name="model")


def test_removed_arguments_say_what_to_write() -> None:
    home = importlib.import_module("tensorflow.python.ipu.keras")
    with pytest.raises(RuntimeError, match=r"set_gradient_accumulation_options\(gradient_acc.*dtype is gone"):
        home.Sequential([], gradient_accumulation_count=4, gradient_accumulation_dtype="float16")
    both = r"set_pipelining_options\(gradient_acc.*set_pipelining_options\(device_mapp"
    with pytest.raises(RuntimeError, match=both):
        home.PipelineSequential([], gradient_accumulation_count=4, device_mapping=[0, 1])
