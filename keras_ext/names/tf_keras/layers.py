"""The layers of `tf_keras.ipu.layers`, subclasses of those of tf_keras."""

from __future__ import annotations

import tf_keras

from ipu._internal.names.namespace import public_names
from keras_ext.layers import DEFINITIONS, OLD_NAMES
from keras_ext.layers.definition import framework_classes

_classes = framework_classes(DEFINITIONS, tf_keras, "tf_keras.ipu.layers")
globals().update(_classes)
globals().update({old: _classes[name] for old, name in OLD_NAMES.items()})
__getattr__, __dir__ = public_names(__name__, _classes)
