"""Adam whose moments have dtypes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf

from keras_ext.optimizers.states import WithStates, dtype_name, tensor
from keras_ext.types import Tensor


class AdamIpuOptimizer(WithStates):
    """Keras' Adam, whose moments may have dtypes of their own, and with or without the correction of their bias.

    Args:
        learning_rate, beta_1, beta_2, epsilon, amsgrad, name, **kwargs: as in Keras' Adam.
        m_dtype, v_dtype, vhat_dtype: dtypes of the first moment, the second, and the second's maximum with `amsgrad`;
            None is the variable's.
        debiasing: whether to correct for the moments' initial zeros.
        optimizer_compute_precisions: the dtypes in which moments and steps are computed; float32 unless given.
        outline_apply_gradients, outline_apply_gradients_kwargs: accepted; they have no effect on results.

    Raises:
        ValueError: `optimizer_compute_precisions` are not two dtypes.
    """

    base = "Adam"
    stages = 2
    settings: ClassVar[tuple[str, ...]] = (
        *("m_dtype", "v_dtype", "vhat_dtype", "debiasing", "optimizer_compute_precisions"),
        *("outline_apply_gradients", "outline_apply_gradients_kwargs"),
    )

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        m_dtype: Any = None,
        v_dtype: Any = None,
        vhat_dtype: Any = None,
        debiasing: bool = True,
        optimizer_compute_precisions: Sequence[Any] | None = None,
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        named = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "amsgrad": amsgrad, "name": name}
        super().__init__(learning_rate=learning_rate, **named, **kwargs)
        self.m_dtype, self.v_dtype, self.vhat_dtype = map(dtype_name, (m_dtype, v_dtype, vhat_dtype))
        self.debiasing = debiasing
        self._set_precisions(optimizer_compute_precisions)
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = outline_apply_gradients_kwargs

    def build(self, var_list: Sequence[Any]) -> None:
        """Creates the moments of each variable, zeros; a second call changes nothing.

        Args:
            var_list: the variables to optimize.
        """
        maximum = {"velocity_hat": self.vhat_dtype} if self.amsgrad else {}
        self._create_states(var_list, {"momentum": self.m_dtype, "velocity": self.v_dtype, **maximum})

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Any = None) -> None:
        """Updates a variable and its moments.

        Args:
            gradient: the gradient, dense or sparse; it is cast to the dtype of the computation.
            variable: the variable, one of those the optimizer is built for.
            learning_rate: a number or scalar tensor; None is the optimizer's own.
        """
        first, second = self.optimizer_compute_precisions[:2]
        states = self._states(variable)
        gradient = tensor(gradient, first)
        m, v = (tensor(state, first) for state in states[:2])
        moments = [m + (gradient - m) * (1 - self.beta_1), v + (tf.square(gradient) - v) * (1 - self.beta_2)]
        if self.amsgrad:
            moments.append(tf.maximum(tensor(states[2], first), moments[1]))
        for state, moment in zip(states, moments, strict=True):
            state.assign(tf.cast(moment, state.dtype))
        rate = tensor(self.learning_rate if learning_rate is None else learning_rate, second)
        step = self._step(tf.cast(moments[0], second), tf.cast(moments[-1], second), rate, variable)
        variable.assign_sub(tf.cast(step, variable.dtype))

    def _step(self, m: tf.Tensor, v: tf.Tensor, rate: tf.Tensor, variable: Any) -> tf.Tensor:
        """The amount that is subtracted from the variable."""
        unbiased_m, unbiased_v = self._corrections(m.dtype)
        return m * (rate * tf.sqrt(unbiased_v) / unbiased_m) / (tf.sqrt(v) + self.epsilon)

    def _corrections(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """The sums of the weights of the gradients in each moment, which lack the weight of its initial zeros."""
        count = tf.cast(self.iterations + 1, tf.float32)  # powers of betas near 1 need float32
        betas = (self.beta_1, self.beta_2)
        sums = (1 - tf.pow(tf.cast(beta, tf.float32), count) if self.debiasing else tf.ones([]) for beta in betas)
        m, v = (tf.cast(each, dtype) for each in sums)
        return m, v
