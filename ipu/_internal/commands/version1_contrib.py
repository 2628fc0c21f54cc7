"""`tf.contrib` for `python -m ipu.run --tf1`: the part that programs for IPUs use, a few lines each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import tensorflow.compat.v1 as v1

from ipu._internal.commands import version1_layers as layers
from ipu._internal.commands.version1_hparams import HParams
from ipu._internal.commands.version1_namespace import Namespace


@functools.cache
def contrib() -> ModuleType:
    """`tf.contrib`."""
    ipu = import_module("ipu")
    framework = {"argsort": v1.argsort, "nest": v1.nest, "sort": v1.sort}
    util = {name: getattr(v1, name) for name in ("make_ndarray", "make_tensor_proto")}
    data = {"batch_and_drop_remainder": batch_and_drop_remainder}
    return Namespace(
        "tf.contrib",
        data=Namespace("tf.contrib.data", v1.data.experimental, **data),
        distributions=Namespace("tf.contrib.distributions", v1.distributions),
        framework=Namespace("tf.contrib.framework", v1.train, **framework),
        ipu=Namespace("tf.contrib.ipu", ipu, python=ipu),
        layers=Namespace("tf.contrib.layers", **{name: getattr(layers, name) for name in layers.__all__}),
        rnn=Namespace("tf.contrib.rnn", v1.nn.rnn_cell, static_rnn=v1.nn.static_rnn),
        signal=Namespace("tf.contrib.signal", v1.signal),
        stateless=Namespace("tf.contrib.stateless", v1.random),
        training=Namespace("tf.contrib.training", HParams=HParams),
        util=Namespace("tf.contrib.util", **util, constant_value=v1.get_static_value),
    )


def batch_and_drop_remainder(batch_size: int) -> Callable[[Any], Any]:
    """A function for `Dataset.apply` that batches elements, without a partial batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)
