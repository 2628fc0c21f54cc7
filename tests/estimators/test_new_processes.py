"""Trainings go on in new processes, also after kills, to the numbers of Keras and of undisturbed runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.estimators.keras_names import fresh_keras_names
from tests import forking
from tests.estimators import classifiers, training
from tests.estimators.classifiers import BATCH, IMAGES, LABELS
from tests.estimators.models import v1
from tests.exploring import more_seeds

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    forking.start_server()


def check_as_undisturbed(folder: str, alone: str, last_step: int) -> None:
    undisturbed = training.train(alone, last_step)
    resumed = training.train(folder, last_step)
    for name in undisturbed.get_variable_names():
        np.testing.assert_array_equal(resumed.get_variable_value(name), undisturbed.get_variable_value(name), name)


@pytest.mark.sample(1)
@pytest.mark.parametrize("net", classifiers.NETS)
def test_classifiers_equal_those_of_keras(net: str, tmp_path: Path) -> None:
    estimator = classifiers.train(net, str(tmp_path), 8)
    with fresh_keras_names():
        model = classifiers.IN_KERAS[net]()
    names = {v.path if net == "cnn" else v.path.removeprefix("sequential/"): v for v in model.variables}
    for name, variable in names.items():
        variable.assign(tf.train.load_variable(str(tmp_path / "model.ckpt-0"), name))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.SGD(classifiers.RATE, classifiers.MOMENTUM), loss, metrics=["accuracy"], run_eagerly=True
    )
    model.fit(IMAGES, LABELS, BATCH, epochs=2, shuffle=False, verbose=0)

    version_1 = net == "dnn"
    status, output = forking.run(classifiers.train, net, str(tmp_path), 16, version_1)
    assert status == 0, output
    for name, variable in names.items():
        value = estimator.get_variable_value(name)
        np.testing.assert_allclose(value, variable, rtol=1e-4, atol=1e-5, err_msg=name)
    evaluated, expected = estimator.evaluate(classifiers.batches), model.evaluate(IMAGES, LABELS, BATCH, verbose=0)
    np.testing.assert_allclose([evaluated["loss"], evaluated["accuracy"]], expected, rtol=1e-4)
    probabilities = tf.nn.softmax(model.predict(IMAGES, verbose=0))
    predicted = np.stack([each["probabilities"] for each in estimator.predict(classifiers.images)])
    np.testing.assert_allclose(predicted, probabilities, rtol=1e-3, atol=1e-5)

    def receiver() -> object:
        fed = {"image": v1.placeholder(tf.float32, [None, 6, 6, 1])}
        return v1.estimator.export.ServingInputReceiver(fed, fed)

    loaded = tf.saved_model.load(os.fsdecode(estimator.export_saved_model(str(tmp_path / "exported"), receiver)))
    served = loaded.signatures["serving_default"](image=tf.constant(IMAGES))["probabilities"]
    np.testing.assert_allclose(served, probabilities, rtol=1e-3, atol=1e-5)


def test_a_killed_training_resumes(tmp_path: Path) -> None:
    folder, last_step = str(tmp_path / "killed"), 48
    for runs in np.random.default_rng(0).integers(1, 5, 2):
        assert forking.run(training.train, folder, last_step, int(runs))[0] == -signal.SIGKILL
    check_as_undisturbed(folder, str(tmp_path / "alone"), last_step)


@pytest.mark.explore
@pytest.mark.parametrize("seed", more_seeds(range(1), 1))
def test_a_training_that_is_killed_at_any_moment_resumes(seed: int, tmp_path: Path) -> None:
    folder = str(tmp_path / "killed")
    for seconds in np.random.default_rng(seed).uniform(0, 1, 20):
        assert forking.run(training.train, folder, 1 << 20, None, float(seconds))[0] == -signal.SIGKILL
    saved = tf.train.load_variable(folder, "global_step")
    check_as_undisturbed(folder, str(tmp_path / "alone"), int(saved) + 80)
