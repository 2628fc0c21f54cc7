"""Definitions of the documented optimizers, one for both Keras; `keras_ext/names` has their classes."""

from __future__ import annotations

from keras_ext.layers.definition import Definition
from keras_ext.optimizers.adam import AdamIpuOptimizer
from keras_ext.optimizers.lamb import LAMBIpuOptimizer
from keras_ext.optimizers.loss_scaling import ALSOptimizer
from keras_ext.optimizers.sgd import SGDIpuOptimizer

DEFINITIONS: dict[str, type[Definition]] = {
    "ALSOptimizer": ALSOptimizer,
    "AdamIpuOptimizer": AdamIpuOptimizer,
    "LAMBIpuOptimizer": LAMBIpuOptimizer,
    "SGDIpuOptimizer": SGDIpuOptimizer,
}
"""Definitions by documented name."""
