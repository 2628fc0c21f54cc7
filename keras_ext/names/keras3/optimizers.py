"""The optimizers of `keras.ipu.optimizers`, subclasses of those of Keras 3."""

from __future__ import annotations

import keras

from ipu._internal.names.namespace import public_names
from keras_ext.layers.definition import framework_classes
from keras_ext.optimizers import DEFINITIONS
from keras_ext.optimizers.loss_scaling import with_loss_scaling

_classes = framework_classes(DEFINITIONS, keras, "keras.ipu.optimizers")
globals().update(_classes)
globals().update(with_loss_scaling(keras, _classes["ALSOptimizer"]))
__getattr__, __dir__ = public_names(__name__, _classes)
