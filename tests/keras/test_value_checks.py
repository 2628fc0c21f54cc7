"""Checks of values such as labels and ids: the engine raises the errors that Keras on TensorFlow raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu
from engine.errors import InvalidValue
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import CLASSES, Kit, both_frameworks, data

BATCH, WRONG = 8, 20  # sample 20 is in the third batch
STEPS = 4
Changed = dict[str, Any]


def labelled() -> tuple[np.ndarray, np.ndarray]:
    return data(8 * STEPS)


def with_label(value: float, dtype: str = "int64") -> np.ndarray:
    labels = labelled()[1].astype(dtype)
    labels[WRONG] = value
    return labels


def ignoring(kit: Kit) -> Any:
    return kit.keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)


def outcome(call: Any) -> str:
    """The error's class and the values that it names, or an empty text."""
    try:
        call()
    except tf.errors.InvalidArgumentError as error:
        return str(error)
    return ""


@both_frameworks
@pytest.mark.parametrize(
    ("label", "dtype", "ignores", "fails"),
    [
        (CLASSES, "int64", False, True),
        (-1, "int32", False, True),
        (1e9, "float32", False, True),
        (np.nan, "float32", False, True),
        (-0.5, "float32", False, False),
        (-1, "int64", True, False),
        (CLASSES, "int64", True, True),
        (255, "uint8", False, True),
    ],
)
def test_a_label_outside_the_classes_raises_as_in_keras(
    kit: Kit, label: float, dtype: str, ignores: bool, fails: bool
) -> None:
    x, labels = labelled()[0], with_label(label, dtype)
    loss = ignoring(kit) if ignores else "sparse_categorical_crossentropy"
    models = [kit.compiled(kit.sequential(), loss=loss, run_eagerly=True)]
    with IPUStrategy().scope():
        models.append(kit.compiled(kit.sequential(), loss=loss, steps_per_execution=STEPS))
    models[1].set_weights(models[0].get_weights())
    errors = [outcome(lambda m=m: m.fit(x, labels, batch_size=BATCH, shuffle=False, verbose=0)) for m in models]
    assert [bool(error) for error in errors] == [fails, fails]
    for plain, ours in zip(models[0].get_weights(), models[1].get_weights(), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=2e-5, atol=2e-6)
    assert int(models[1].optimizer.iterations) == int(models[0].optimizer.iterations) == (2 if fails else 4)
    if fails:
        assert f"which is outside the valid range of [0, {CLASSES})" in errors[0]
        assert f"which is outside the valid range of [0, {CLASSES})" in errors[1]
        assert "step 3 of the execution's 4" in errors[1] and "'sparse_categorical_crossentropy'" in errors[1]
        models[1].fit(*labelled(), batch_size=BATCH, verbose=0)  # nothing is lost


@pytest.mark.parametrize("way", ["evaluate", "validation", "train_on_batch", "test_on_batch", "images", "generator"])
def test_labels_are_checked_in_every_method(kit: Kit, way: str) -> None:
    (x, y), wrong = labelled(), with_label(7)
    with ipu.accelerate() as acceleration:
        model = kit.compiled(kit.sequential())
        if way == "images":
            layers = kit.keras.layers
            model = kit.keras.Sequential([layers.Input((3, 2, 2)), layers.Dense(CLASSES, "softmax")])
            kit.compiled(model)
            x, wrong = np.zeros((2 * BATCH, 3, 2, 2), np.float32), np.zeros((2 * BATCH, 3, 2), np.int64)
            wrong[9, 2, 1] = 7
    calls = {
        "evaluate": lambda: model.evaluate(x, wrong, batch_size=BATCH, verbose=0),
        "validation": lambda: model.fit(x, y, validation_data=(x, wrong), batch_size=BATCH, verbose=0),
        "train_on_batch": lambda: [model.train_on_batch(x[k : k + 8], wrong[k : k + 8]) for k in (0, 8, 16)],
        "test_on_batch": lambda: [model.test_on_batch(x[k : k + 8], wrong[k : k + 8]) for k in (0, 8, 16)],
        "images": lambda: model.fit(x, wrong, batch_size=BATCH, verbose=0),
        "generator": lambda: model.fit(
            ((x[k : k + 8], wrong[k : k + 8]) for k in (0, 8, 16)), shuffle=False, verbose=0
        ),
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="label value of 7 which") as raised:
        calls[way]()
    assert isinstance(raised.value, InvalidValue) and raised.value.value == 7
    assert acceleration.fallbacks == ()


def words(kit: Kit, ids: str = "int32", activation: str = "linear", **embedding: Any) -> Any:
    """A model of 4 ids of 6 words."""
    layers = kit.keras.layers
    reading = layers.LSTM(3) if embedding else layers.Flatten()
    inputs, head = layers.Input((4,), dtype=ids), layers.Dense(3, activation)
    return kit.keras.Sequential([inputs, layers.Embedding(6, 3, **embedding), reading, head])


def read(value: int, dtype: str = "int32") -> np.ndarray:
    ids = np.random.default_rng(1).integers(0, 6, (8 * STEPS, 4)).astype(dtype)
    ids[WRONG, 2] = value
    return ids


@both_frameworks
@pytest.mark.parametrize(
    ("value", "dtype", "options", "way"),
    [
        (6, "int32", {}, "fit"),
        (1000, "int64", {}, "predict"),
        (6, "float32", {}, "fit"),
        (6, "int32", {"mask_zero": True}, "fit"),
        (-7, "int32", {}, "predict"),
        (-1, "int32", {}, "predict"),  # Keras 3 counts from the end
        (6, "int32", {}, "predict_on_batch"),
    ],
)
def test_an_id_outside_an_embedding_raises_as_in_keras(
    kit: Kit, value: int, dtype: str, options: Changed, way: str
) -> None:
    x, y, errors = read(value, dtype), np.zeros((8 * STEPS, 3), np.float32), []
    for plain in (True, False):
        with ipu.accelerate() if not plain else tf.device("/CPU:0"):
            model = words(kit, dtype, **options)
            model.compile("sgd", "mse", run_eagerly=plain, **({} if plain else {"steps_per_execution": STEPS}))
        calls = {
            "fit": lambda m=model: m.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0),
            "predict": lambda m=model: m.predict(x, batch_size=BATCH, verbose=0),
            "predict_on_batch": lambda m=model: [m.predict_on_batch(x[k : k + 8]) for k in (0, 8, 16)],
        }
        errors.append(outcome(calls[way]))
    assert bool(errors[0]) == bool(errors[1])
    if errors[0]:
        assert "is not in [0, 6)" in errors[0]
        assert "[4,2]" in errors[1] and "is not in [0, 6)" in errors[1] and "'embedding" in errors[1]


def configured(kit: Kit, mode: str) -> Any:
    """A model of words that is trained in some mode."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2 if mode in ("replicas", "pipeline") else 1
    config.configure_ipu_system()
    with IPUStrategy().scope():
        model = words(kit, activation="softmax")
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=STEPS)
    if mode == "accumulation":
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
    if mode == "pipeline":
        assignments = model.get_pipeline_stage_assignment()
        for number, each in enumerate(assignments):
            each.pipeline_stage = min(number, 1)
        model.set_pipeline_stage_assignment(assignments)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    if mode == "asynchronous":
        model.set_asynchronous_callbacks(True)
    return model


@pytest.mark.parametrize("mode", ["accumulation", "replicas", "pipeline", "asynchronous"])
def test_values_are_checked_in_every_mode(kit: Kit, mode: str) -> None:
    model, good, labels = configured(kit, mode), read(0), np.zeros(8 * STEPS, np.int64)
    model.fit(good, labels, batch_size=2, verbose=0)
    updates = int(model.optimizer.iterations)
    for ids, wrong, text in ((read(6), labels, "is not in [0, 6)"), (good, labels + 3, "outside the valid range")):
        before = model.get_weights()
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            model.fit(ids, wrong, batch_size=2, shuffle=False, verbose=0)
        assert text in str(raised.value)
        changed = any((a != b).any() for a, b in zip(model.get_weights(), before, strict=True))
        assert changed == (ids is not good) == (int(model.optimizer.iterations) > updates)
        assert all(np.isfinite(each).all() for each in model.get_weights())
        updates = int(model.optimizer.iterations)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, 6\)"):
        model.predict(read(6), batch_size=2, verbose=0)
    model.fit(good, labels, batch_size=2, verbose=0)


def test_programs_without_checks_run_as_before(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_VALUE_CHECKS", "none")
    model = kit.ipu_model()
    assert np.isnan(model.evaluate(labelled()[0], with_label(7), verbose=0)[0])


@both_frameworks
@pytest.mark.parametrize("mode", ["none", "accumulation", "replicas", "pipeline"])
def test_the_optimizer_checks_its_values_in_branches(kit: Kit, mode: str) -> None:
    class Rate(kit.keras.optimizers.schedules.LearningRateSchedule):
        """Halves the rate after two updates, and refuses updates from the given one on."""

        def __init__(self, end: int) -> None:
            self.end = end

        def __call__(self, step: Any) -> Any:
            return tf.cond(step < 2, lambda: self.checked(step, 0.5), lambda: self.checked(step, 0.25))

        def checked(self, step: Any, rate: float) -> Any:
            if not self.end:
                return tf.constant(rate)
            with tf.control_dependencies([tf.debugging.Assert(step < self.end, ["too late"])]):
                return tf.identity(tf.constant(rate))

    weights, labels = [], np.arange(8 * STEPS) % 3
    for end in (0, 100, 3):
        model = configured(kit, mode)
        model.set_weights([np.linspace(0, 1, each.size).reshape(each.shape) for each in model.get_weights()])
        with IPUStrategy().scope():
            model.compile(
                kit.keras.optimizers.SGD(Rate(end)), "sparse_categorical_crossentropy", steps_per_execution=STEPS
            )
        if end == 3:
            with pytest.raises(tf.errors.InvalidArgumentError, match="too late"):
                model.fit(read(0), labels, batch_size=2, shuffle=False, verbose=0)
        else:
            model.fit(read(0), labels, batch_size=2, shuffle=False, verbose=0)
            weights.append(model.get_weights())
    for plain, checked in zip(*weights, strict=True):
        np.testing.assert_array_equal(plain, checked)
