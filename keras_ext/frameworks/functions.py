"""The train, test and predict functions of models, in place of Keras' own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from keras_ext.frameworks.common import KerasFunction, refuse_eager_execution, serves
from keras_ext.training import EpochFunction, Framework, Mode, PredictFunction, StepFunction
from keras_ext.types import KerasModel

_making = threading.RLock()


def make_functions(
    model_class: type, framework: Framework, predict: type[PredictFunction], strategy_attribute: str
) -> None:
    """Wraps the methods `make_*_function` of one framework's models; `predict` is the class of predict functions.

    `strategy_attribute` is the attribute in which a model keeps the strategy it was created under.
    """
    kinds: dict[Mode, type[StepFunction]] = {"train": EpochFunction, "test": EpochFunction, "predict": predict}
    for mode, kind in kinds.items():
        name = f"make_{mode}_function"
        make = functools.partial(kind, framework, mode=mode)
        setattr(model_class, name, _making_ours(mode, make, getattr(model_class, name), strategy_attribute))


def _making_ours(
    mode: str, make: Callable[[Any], Any], original: KerasFunction, strategy_attribute: str
) -> KerasFunction:
    """`original`, which makes a model's function of `mode`; for models of an IPUStrategy `make(model)` does."""
    attribute = f"{mode}_function"

    @functools.wraps(original)
    def make_function(self: KerasModel, force: bool = False) -> Any:
        if not serves(getattr(self, strategy_attribute)):
            return original(self, force)
        refuse_eager_execution(self)
        with _making:  # tf_keras deletes an attribute before it sets it
            if getattr(self, attribute) is None or force:
                setattr(self, attribute, make(self))
            return getattr(self, attribute)

    return make_function
