"""The layers of `keras.ipu.layers`, subclasses of those of Keras 3."""

from __future__ import annotations

import keras

from ipu._internal.names.namespace import public_names
from keras_ext.layers import DEFINITIONS, OLD_NAMES
from keras_ext.layers.definition import framework_classes

_classes = framework_classes(DEFINITIONS, keras, "keras.ipu.layers")
globals().update(_classes)
globals().update({old: _classes[name] for old, name in OLD_NAMES.items()})
__getattr__, __dir__ = public_names(__name__, _classes)
