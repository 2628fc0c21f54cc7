"""`tensorflow.compiler.plugin.poplar.ops.gen_poprand_ops`: dropout."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike
from ipu.ops.rand_ops import dropout

__all__ = ["ipu_dropout"]
__getattr__, __dir__ = public_names(__name__, __all__)


def ipu_dropout(
    x: TensorLike,
    rate: float = 0.5,
    seed: TensorLike | None = None,
    noise_shape: TensorLike | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Dropout as `rand_ops.dropout`, with the arguments of the original's operation."""
    return dropout(x, rate, noise_shape, seed, name)
