"""Wrapped methods keep name, signature and defaults for reflection: Keras tells classes and arguments apart by them."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras
from tensorflow.python import ipu

ROOTS = tuple(str(Path(ipu.__file__).parent.parent / name) for name in ("ipu", "keras_ext"))


def wrappers() -> list[FunctionType]:
    """The functions of this project that wrap functions of others, in modules and classes."""
    modules = [each for each in sys.modules.values() if isinstance(each, ModuleType)]
    values = [value for module in modules for value in list(vars(module).values())]
    classes = {value for value in values if isinstance(value, type)}
    values += [value for kind in classes for value in list(vars(kind).values())]
    functions = {each for each in values if type(each) is FunctionType and hasattr(each, "__wrapped__")}
    return [each for each in functions if each.__code__.co_filename.startswith(ROOTS)]


def test_every_wrapper_looks_like_what_it_wraps() -> None:
    ipu.ipu_strategy.IPUStrategy()
    found = wrappers()
    assert len(found) > 100
    for wrapper in found:
        wrapped = inspect.unwrap(wrapper)
        if not isinstance(wrapped, FunctionType):  # a bound method, or a class
            assert inspect.signature(wrapper) == inspect.signature(wrapped)
            continue
        assert inspect.getfullargspec(wrapper) == inspect.getfullargspec(wrapped), wrapper
        assert (wrapper.__name__, wrapper.__qualname__) == (wrapped.__name__, wrapped.__qualname__)


@pytest.mark.parametrize("framework", [keras, tf_keras])
@pytest.mark.parametrize("inside", [False, True])
def test_subclasses_without_a_constructor_are_functional(framework: Any, inside: bool) -> None:
    strategy = ipu.ipu_strategy.IPUStrategy()

    class Plain(framework.Model):
        """A model that only has a training step of its own."""

        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    class Variable(framework.Model):
        """A model with a constructor that passes all arguments on."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    class Second(Plain):
        """A subclass of a model without a constructor."""

    with strategy.scope() if inside else np.errstate():
        for kind in (Plain, Variable, Second):
            inputs = framework.Input((6,))
            model = kind(inputs, framework.layers.Dense(3)(inputs))
            model.compile("sgd", "mse")
            x, y = np.ones((8, 6), np.float32), np.ones((8, 3), np.float32)
            first, last = model.fit(x, y, epochs=2, verbose=0).history["loss"]
            assert last < first
            if (framework, kind) == (tf_keras, Variable):  # plain tf_keras makes no functional model from its config
                continue
            again = kind.from_config(model.get_config())
            assert isinstance(again, kind) and again.count_params() == model.count_params() == 21
            assert framework.models.clone_model(model).count_params() == 21
