"""The train, test and predict functions of models, in place of Keras' own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from keras_ext.framework import Framework, Mode
from keras_ext.frameworks.common import refuse_eager_execution, serves
from keras_ext.own_functions import note_made
from keras_ext.training import EpochFunction, PredictFunction, StepFunction
from keras_ext.types import KerasModel
from keras_ext.wrapping import Original, wrap

_making = threading.RLock()


def make_functions(
    model_class: type, framework: Framework, predict: type[PredictFunction], strategy_attribute: str
) -> None:
    """Wraps the methods `make_*_function` of one framework's models; `predict` is the class of predict functions.

    `strategy_attribute` is the attribute in which a model keeps the strategy it was created under.
    """
    kinds: dict[Mode, type[StepFunction]] = {"train": EpochFunction, "test": EpochFunction, "predict": predict}
    for mode, kind in kinds.items():
        make = functools.partial(kind, framework, mode=mode)
        function = functools.partial(_make_function, f"{mode}_function", make, strategy_attribute)
        wrap(model_class, f"make_{mode}_function", function)


def _make_function(
    attribute: str,
    make: Callable[[Any], Any],
    strategy_attribute: str,
    original: Original,
    model: KerasModel,
    force: bool = False,
) -> Any:
    """Sets a model's attribute to a function and returns it: for models of an IPUStrategy, `make(model)`."""
    if not serves(getattr(model, strategy_attribute)):
        return original(model, force)
    refuse_eager_execution(model)
    note_made(model, attribute)
    with _making:  # tf_keras deletes an attribute before it sets it
        if getattr(model, attribute) is None or force:
            setattr(model, attribute, make(model))
        return getattr(model, attribute)
