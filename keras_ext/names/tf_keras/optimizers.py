"""The optimizers of `tf_keras.ipu.optimizers`, subclasses of those of tf_keras."""

from __future__ import annotations

import tf_keras

from ipu._internal.names.namespace import public_names
from keras_ext.layers.definition import framework_classes
from keras_ext.optimizers import DEFINITIONS
from keras_ext.optimizers.loss_scaling import with_loss_scaling

_classes = framework_classes(DEFINITIONS, tf_keras, "tf_keras.ipu.optimizers")
globals().update(_classes)
globals().update(with_loss_scaling(tf_keras, _classes["ALSOptimizer"]))
__getattr__, __dir__ = public_names(__name__, _classes)
