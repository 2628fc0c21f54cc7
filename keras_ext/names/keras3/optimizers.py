"""The optimizers of `keras.ipu.optimizers`, subclasses of those of Keras 3."""

from __future__ import annotations

import keras

from ipu._internal.names.namespace import public_names
from keras_ext.layers.definition import framework_classes
from keras_ext.optimizers import DEFINITIONS

_classes = framework_classes(DEFINITIONS, keras, "keras.ipu.optimizers")
globals().update(_classes)
__getattr__, __dir__ = public_names(__name__, _classes)
