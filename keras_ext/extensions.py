"""The documented extension classes of `keras.ipu.extensions`: which methods each kind of model gets."""

from __future__ import annotations

from keras_ext.accumulation import AccumulationOptions
from keras_ext.callback_options import CallbackOptions
from keras_ext.queue_options import QueueOptions


class _EveryModel(AccumulationOptions, CallbackOptions, QueueOptions):
    """What all kinds of models get; a further group of options is one more base class."""


class SequentialExtension(_EveryModel):
    """The methods of a `Sequential` model created inside an IPUStrategy."""


class FunctionalExtension(_EveryModel):
    """The methods of a functional model created inside an IPUStrategy."""


class ModelExtension(_EveryModel):
    """The methods of an instance of a subclass of `Model` created inside an IPUStrategy."""
