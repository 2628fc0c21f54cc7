"""Where configs of Keras 3 models are written and read."""

from __future__ import annotations

from keras.src.models import cloning
from keras.src.models.functional import Functional
from keras.src.models.model import Model
from keras.src.models.sequential import Sequential

from keras_ext.saving import ConfigKeeper


def keep_options(keeper: ConfigKeeper) -> None:
    """Wraps them at class level, once."""
    for kind in (Sequential, Functional, Model):
        kind.get_config = keeper.writing(kind.get_config)
    for kind in (Sequential, Model):
        kind.from_config = keeper.reading(kind.__dict__["from_config"])
    Model.__init__ = keeper.constructing(Model.__init__)
    Model.save = keeper.checking(Model.save)
    cloning._clone_sequential_model = keeper.cloning(cloning._clone_sequential_model)
    cloning._clone_functional_model = keeper.cloning(cloning._clone_functional_model)
