"""A class or a function is of Keras only if Keras' modules have it, whatever it says of itself."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from keras_ext.origins import is_programs, packages_of, users_own

SOURCE = """
import keras, tf_keras

class Own(keras.Model):
    def train_step(self, data):
        return {}

class Rate(tf_keras.optimizers.SGD):
    def update_step(self, gradient, variable):
        pass

def function(x):
    return x
"""
NAMES = ("keras.src.models.model", "tf_keras.src.own", "tensorflow.own", "builtins", "random", "own_program")


@pytest.mark.parametrize("name", NAMES)
def test_code_that_claims_a_librarys_name(name: str) -> None:
    names: dict[str, Any] = {"__name__": name}
    exec(SOURCE, names)
    assert all(map(is_programs, (names["Own"], names["Rate"], names["function"])))
    assert users_own(names["Own"], "train_step") and users_own(names["Rate"], "update_step")
    assert not users_own(names["Own"], "test_step") and not users_own(names["Rate"], "build")


@pytest.mark.parametrize("name", ["keras_tools", "tf_keras_own", "own_program"])
def test_modules_of_a_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(SOURCE, vars(module))
    assert packages_of(module.Own) == packages_of(module.function) == {name}
    assert users_own(module.Own, "train_step")


def test_a_replaced_method_of_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    original = keras.Model.train_step

    @functools.wraps(original)
    def train_step(model: Any, data: Any) -> Any:
        return original(model, data)

    assert not users_own(keras.Sequential, "train_step")
    monkeypatch.setattr(keras.Model, "train_step", train_step)
    assert users_own(keras.Sequential, "train_step")


def test_objects_of_libraries() -> None:
    ours: list[Any] = [dict, np.ndarray, tf.Variable, tf.constant(1.0), keras.layers.Dense, keras.activations.relu]
    ours += [keras.initializers.GlorotUniform(), tf_keras.Model, tf_keras.losses.mse, functools.partial(print), print]
    for framework in (keras, tf_keras):
        for group in (framework.layers, framework.optimizers, framework.metrics, framework.losses):
            ours += [each for each in vars(group).values() if isinstance(each, type)]
    assert not [each for each in ours if is_programs(each)]
    assert not any(users_own(kind, "update_step") for kind in (keras.optimizers.Adam, tf_keras.optimizers.Adam))
