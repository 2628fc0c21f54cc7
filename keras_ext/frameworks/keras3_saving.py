"""Where configs of Keras 3 models are written and read."""

from __future__ import annotations

from keras.src.models import cloning
from keras.src.models.functional import Functional
from keras.src.models.model import Model
from keras.src.models.sequential import Sequential

from keras_ext.saving import ConfigKeeper


def keep_options(keeper: ConfigKeeper) -> None:
    """Wraps them at class level, once."""
    keeper.wrap(Sequential, Functional, Model, cloning)
