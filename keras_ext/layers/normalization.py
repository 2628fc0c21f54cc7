"""Normalization layers: no statistics are kept, and inference computes as training does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf

from ipu._internal.operators.normalization import normalized
from keras_ext.layers.definition import Definition, dtype_or_policy
from keras_ext.layers.errors import LayerArgumentError, LayerInputError
from keras_ext.types import Tensor


class GroupNormalization(Definition):
    """Gives each group of a sample's channels, over all other dimensions, zero mean and unit variance.

    Statistics are computed in float32. The weights are `gamma` and `beta`, [channels].

    Args:
        dtype: the dtype of the weights and the result, or a policy of Keras.
        groups: the number of groups, which divides the number of channels; None is a group for each channel.
        channels_axis: the axis of the channels; not 0, the batch's.
        center: whether to add `beta`.
        scale: whether to multiply by `gamma`.
        epsilon: added to the variances.
        beta_initializer, gamma_initializer: initializers of the weights; None is zeros and ones.
        strided_channel_grouping: whether channel c belongs to group c % groups. Weights trained elsewhere need False:
            group c // (channels / groups).
        trainable, name, **kwargs: arguments of every Keras layer.
    """

    settings: ClassVar[tuple[str, ...]] = (
        *("groups", "channels_axis", "center", "scale", "epsilon", "beta_initializer", "gamma_initializer"),
        "strided_channel_grouping",
    )

    def __init__(
        self,
        dtype: Any = "float32",
        groups: int | None = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 1e-3,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype_or_policy(dtype), trainable=trainable, name=name, **kwargs)
        self.supports_masking = True
        self.groups = groups
        self.channels_axis = channels_axis
        self.center = center
        self.scale = scale
        self.epsilon = epsilon
        self.beta_initializer = self.framework.initializers.get(beta_initializer or "zeros")
        self.gamma_initializer = self.framework.initializers.get(gamma_initializer or "ones")
        self.strided_channel_grouping = strided_channel_grouping

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the weights.

        Args:
            input_shape: the shape of the inputs, of two or more dimensions and a known number of channels.

        Raises:
            ValueError: the number of channels is not known, or `groups` does not divide it.
        """
        shape, axis = tuple(tf.TensorShape(input_shape).as_list()), self.channels_axis
        channels = shape[axis] if -len(shape) < axis < len(shape) and axis != 0 else None
        if channels is None:
            raise LayerInputError(
                f"Expected inputs with a known number of channels in axis {axis}, which is not the batch's. "
                f"Received: the shape {shape} for layer {self.name!r}. Set channels_axis."
            )
        if self.groups is not None and (self.groups < 1 or channels % self.groups):
            divisors = [number for number in range(1, channels + 1) if channels % number == 0]
            raise LayerArgumentError(
                f"Expected groups that divide the {channels} channels of layer {self.name!r}: one of {divisors}. "
                f"Received: groups={self.groups}."
            )
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(name="gamma", shape=(channels,), initializer=self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=(channels,), initializer=self.beta_initializer)
        self.built = True

    def call(self, inputs: Tensor, training: Any = None) -> Tensor:
        """Normalizes each group of channels of each sample.

        Args:
            inputs: a tensor of the built number of channels, cast to the layer's compute dtype.
            training: has no effect: inference computes as training does.

        Returns:
            The normalized inputs, in their shape, of the compute dtype.
        """
        inputs = tf.cast(inputs, self.compute_dtype)
        axis = self.channels_axis % inputs.shape.rank
        groups = inputs.shape.as_list()[axis] if self.groups is None else self.groups
        return normalized(inputs, groups, axis, self.beta, self.gamma, self.epsilon, self.strided_channel_grouping)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Infers the shape of the result.

        Args:
            input_shape: the shape of the inputs.

        Returns:
            The same shape.
        """
        return input_shape


class InstanceNormalization(GroupNormalization):
    """GroupNormalization with a group for each channel.

    Args:
        dtype, channels_axis, center, scale, epsilon, beta_initializer, gamma_initializer: as in GroupNormalization.
        trainable, name, **kwargs: arguments of every Keras layer.
    """

    settings = ("channels_axis", "center", "scale", "epsilon", "beta_initializer", "gamma_initializer")

    def __init__(
        self,
        dtype: Any = "float32",
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 1e-3,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        shared = (channels_axis, center, scale, epsilon, beta_initializer, gamma_initializer)
        super().__init__(dtype, None, *shared, trainable=trainable, name=name, **kwargs)


class LayerNormalization(Definition):
    """Keras' LayerNormalization over one or more axes, in float32 by default.

    Args:
        dtype: the dtype of the weights and the computation, or a policy of Keras.
        axis: the axis to normalize over, or a sequence of axes.
        epsilon: added to the variance.
        center: whether to add the weight `beta`.
        scale: whether to multiply by the weight `gamma`.
        beta_initializer, gamma_initializer: initializers of the weights.
        trainable, name, **kwargs: arguments of every Keras layer, and regularizers and constraints of the weights.
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
        named = {"beta_initializer": beta_initializer, "gamma_initializer": gamma_initializer, **kwargs}
        named |= {"dtype": dtype_or_policy(dtype), "trainable": trainable, "name": name}
        super().__init__(axis=axis, epsilon=epsilon, center=center, scale=scale, **named)

    def call(self, inputs: Tensor, training: Any = None) -> Tensor:
        """Normalizes over the axes.

        Args:
            inputs: a tensor of the rank the layer is built for.
            training: has no effect: inference computes as training does.

        Returns:
            The normalized inputs, in their shape, of the layer's compute dtype.
        """
        return super().call(inputs)
