"""Normalization layers: no statistics are kept, and inference computes as training does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras_ext.layers.definition import Definition, dtype_or_policy


class LayerNormalization(Definition):
    """Keras' LayerNormalization over one or more axes, in float32 unless told otherwise.

    Args:
        dtype: of the weights and the computation, or a policy of Keras.
        axis: the axis to normalize over, or a sequence of axes.
        epsilon: added to the variance.
        center: whether to add the weight `beta`.
        scale: whether to multiply by the weight `gamma`.
        beta_initializer, gamma_initializer: initializers of the weights.
        trainable, name, **kwargs: as of every Keras layer, and regularizers and constraints of the weights.
    """

    base = "LayerNormalization"

    def __init__(
        self,
        dtype: Any = "float32",
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            axis=axis,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            dtype=dtype_or_policy(dtype),
            trainable=trainable,
            name=name,
            **kwargs,
        )
