"""Stages of a subclass of `Model` are found wherever its `call` opens them; models without stages are not traced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.extensions import PipelineStage
from keras_ext.pipelining import subclasses
from tests.keras import stage_helpers
from tests.keras.helpers import CLASSES, FEATURES, Kit, data
from tests.keras.pipelines import BATCH, loss_of
from tests.keras.stage_helpers import SCOPES, Staged, in_stage, indirectly

STEPS = 4
Call = Callable[[Any, Any], Any]


def model_with(kit: Kit, call: Call, **more: Any) -> Any:
    """A compiled model of two layers whose `call` is a function of its own."""

    def __init__(self: Any) -> None:
        super(Model, self).__init__()
        self.first, self.head = kit.keras.layers.Dense(FEATURES), kit.keras.layers.Dense(CLASSES)

    Model: Any = type("Model", (kit.keras.Model,), {"__init__": __init__, "call": call, "__module__": __name__, **more})
    with IPUStrategy().scope():
        model = Model()
        model.compile("sgd", loss_of(kit), steps_per_execution=STEPS)
    model.set_pipelining_options(STEPS)
    return model


def fit(model: Any) -> None:
    x, y = data(2 * STEPS * BATCH)
    model.fit(x, y, batch_size=BATCH, verbose=0)


def by_function(self: Any, inputs: Any) -> Any:
    return in_stage(1, self.head, in_stage(0, self.first, inputs))


def by_module(self: Any, inputs: Any) -> Any:
    return stage_helpers.in_stage(1, self.head, stage_helpers.in_renamed_stage(0, self.first, inputs))


def by_two_functions(self: Any, inputs: Any) -> Any:
    return indirectly(1, self.head, indirectly(0, self.first, inputs))


def by_class(self: Any, inputs: Any) -> Any:
    with Staged(0):
        inputs = self.first(inputs)
    with Staged(1):
        return self.head(inputs)


def in_closure() -> Call:
    scope = PipelineStage

    def call(self: Any, inputs: Any) -> Any:
        with scope(0):
            inputs = self.first(inputs)
        with scope(1):
            return self.head(inputs)

    return call


def decorated() -> Call:
    def decorate(call: Call) -> Call:
        @functools.wraps(call)
        def wrapper(self: Any, inputs: Any) -> Any:
            return call(self, inputs)

        return wrapper

    return decorate(by_function)


WAYS = [by_function, by_module, by_two_functions, by_class, in_closure(), decorated()]


@pytest.mark.parametrize("call", WAYS, ids=["function", "module", "two functions", "class", "closure", "decorated"])
def test_stages_opened_outside_of_the_class_are_honoured(kit: Kit, call: Call) -> None:
    model = model_with(kit, call)
    fit(model)
    assert {row.stage for row in model.get_pipeline_schedule("train")} == {0, 1}
    assert [assignment.pipeline_stage for assignment in model.get_pipeline_stage_assignment()] == [0, 1]


def test_layers_made_in_scopes_by_a_function(kit: Kit) -> None:
    model = model_with(kit, lambda self, inputs: self.head(self.first(inputs)))
    with IPUStrategy().scope():
        with PipelineStage(0):
            model.first = kit.keras.layers.Dense(FEATURES)
        with PipelineStage(1):
            model.head = kit.keras.layers.Dense(CLASSES)
    fit(model)
    assert {row.stage for row in model.get_pipeline_schedule("train")} == {0, 1}


def test_a_function_that_the_model_holds(kit: Kit) -> None:
    model = model_with(kit, lambda self, inputs: self.run(1, self.head, self.run(0, self.first, inputs)))
    model.run = functools.partial(in_stage)
    fit(model)
    assert {row.stage for row in model.get_pipeline_schedule("train")} == {0, 1}


def untraceable(self: Any, inputs: Any) -> Any:
    """A `call` that fails with symbolic inputs, as it loops over a batch."""
    return self.head(self.first(tf.stack([inputs[row] for row in range(int(inputs.shape[0]))])))


def untraceable_with_stages(self: Any, inputs: Any) -> Any:
    with PipelineStage(0):
        x = self.first(inputs)
    with PipelineStage(1):
        return self.head(x / len(np.asarray(x)))


def test_models_without_stages_are_never_traced(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages elsewhere in the process make no difference."""
    with IPUStrategy().scope(), PipelineStage(0):
        kept = kit.keras.layers.Dense(3)
    traced: list[Any] = []
    real = subclasses.traced_graph
    monkeypatch.setattr(subclasses, "traced_graph", lambda *given: (traced.append(given), real(*given))[1])
    model = model_with(kit, untraceable)
    fit(model)
    assert model.predict(data(BATCH)[0], verbose=0).shape == (BATCH, CLASSES)
    assert traced == []
    with pytest.raises(RuntimeError, match=r"Call build\(\)"):
        model.get_pipeline_stage_assignment()
    del kept


def test_a_call_that_cannot_be_traced_is_an_error_that_says_why(kit: Kit) -> None:
    model = model_with(kit, untraceable_with_stages)
    before = model.built
    with pytest.raises(
        RuntimeError, match=r"call can be traced with symbolic inputs.*put all other code into"
    ) as error:
        fit(model)
    assert isinstance(error.value, ValueError) and model.built == before


def test_build_tells_later_why_there_is_no_graph(kit: Kit) -> None:
    model = model_with(kit, lambda self, inputs: self.head(self.first(inputs)) / len(np.asarray(inputs)))
    # Keras 3 has built the layers before the call fails, and does not warn; tf_keras passes the error on.
    with nullcontext() if kit.is_keras3 else pytest.raises(NotImplementedError):
        model.build((BATCH, FEATURES))
    with pytest.raises(RuntimeError, match=r"When it was built, its call could not be traced: .*"):
        model.get_pipeline_stage_assignment()


def test_operations_of_tensorflow_in_call_need_no_stages_to_build(kit: Kit) -> None:
    model = model_with(kit, lambda self, inputs: self.head(tf.math.cumsum(self.first(inputs), 1)))
    model.build((BATCH, FEATURES))
    assert [tuple(each.shape)[0] for each in model.weights[::2]] == [FEATURES, model.weights[0].shape[1]]
    fit(model)
    if kit.is_keras3:
        with pytest.raises(RuntimeError, match=r"When it was built, its call could not be traced: .*"):
            model.get_pipeline_stage_assignment()


def hidden(self: Any, inputs: Any) -> Any:
    with SCOPES["stage"](0):
        inputs = self.first(inputs)
    with SCOPES["stage"](1):
        return self.head(inputs)


def test_scopes_out_of_sight_are_an_error_until_the_model_is_built(kit: Kit) -> None:
    model = model_with(kit, hidden)
    with pytest.raises(RuntimeError, match=r"none were found before.*Call build\(\).*PipelineStage\(0\) entered"):
        fit(model)
    model = model_with(kit, hidden)
    model.build((BATCH, FEATURES))
    fit(model)
    assert {row.stage for row in model.get_pipeline_schedule("train")} == {0, 1}
    model.reset_pipeline_stage_assignment()
    model.predict(data(STEPS * BATCH)[0], batch_size=BATCH, verbose=0)
    with pytest.raises(RuntimeError, match="mode 'predict'"):
        model.get_pipeline_schedule("predict")


def test_scopes_in_the_call_of_a_layer_are_refused(kit: Kit) -> None:
    """Scopes are refused in models without stages and in models with stages."""

    class Opening(kit.keras.layers.Layer):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any) -> Any:
            with PipelineStage(1):
                return inputs + 1.0

    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.layers.Dense(CLASSES), Opening()])
        model.compile("sgd", loss_of(kit), steps_per_execution=STEPS)
        made = kit.keras.Sequential([kit.keras.layers.Dense(CLASSES), Opening()])
        made.compile("sgd", loss_of(kit), steps_per_execution=STEPS)
    with pytest.raises(RuntimeError, match="not in that of its layers"):
        fit(model)
    made.set_pipeline_stage_assignment([0, 1])
    made.set_pipelining_options(STEPS)
    with pytest.raises(RuntimeError, match="around calls of layers, not in them"):
        fit(made)


def test_values_read_while_call_is_traced_are_refused(kit: Kit) -> None:
    """Values read there would stay the same for ever, and have no gradients."""

    def call(self: Any, inputs: Any) -> Any:
        with PipelineStage(0):
            x = self.first(inputs)
        with PipelineStage(1):
            return self.head(x) * float(np.asarray(self.scale))

    model = model_with(kit, call)
    with IPUStrategy().scope():
        model.scale = tf.Variable(2.0, name="scale")
    with pytest.raises(RuntimeError, match="'scale.*', whose value is read while call is traced"):
        fit(model)
