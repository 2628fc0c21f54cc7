"""The losses of `keras.ipu.losses`, which are layers."""

from __future__ import annotations

import keras

from ipu._internal.names.namespace import public_names
from keras_ext.layers.definition import framework_classes
from keras_ext.losses import DEFINITIONS

_classes = framework_classes(DEFINITIONS, keras, "keras.ipu.losses")
globals().update(_classes)
__getattr__, __dir__ = public_names(__name__, _classes)
