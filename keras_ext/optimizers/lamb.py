"""LAMB: Adam with steps whose lengths are in proportion to those of the variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ext.optimizers.adam import AdamIpuOptimizer
from keras_ext.optimizers.states import tensor


class LAMBIpuOptimizer(AdamIpuOptimizer):
    """LAMB (https://arxiv.org/abs/1904.00962), whose moments may have dtypes of their own.

    Args:
        learning_rate, beta_1, beta_2, epsilon, name, **kwargs: as in Keras' Adam.
        weight_decay_rate: the factor by which a variable is multiplied before it is added to its step.
        exclude_from_weight_decay: regular expressions; variables with one in their name do not decay.
        exclude_from_layer_adaptation: regular expressions for variables whose steps keep their length; None takes
            `exclude_from_weight_decay`.
        debiasing, m_dtype, v_dtype: as in AdamIpuOptimizer.
        weight_norm_clip: the largest norm of a variable that counts for the length of its step, or None.
        optimizer_compute_precisions: the dtypes in which moments, steps and norms are computed; float32 unless given.
        outline_apply_gradients, outline_apply_gradients_kwargs: accepted; they have no effect on results.

    Raises:
        ValueError: `optimizer_compute_precisions` are not three dtypes.
    """

    stages = 3
    settings = (
        *AdamIpuOptimizer.settings,
        *("weight_decay_rate", "exclude_from_weight_decay", "exclude_from_layer_adaptation", "weight_norm_clip"),
    )

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        debiasing: bool = True,
        m_dtype: Any = None,
        v_dtype: Any = None,
        weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        arguments: dict[str, Any] = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "name": name}
        arguments |= {"m_dtype": m_dtype, "v_dtype": v_dtype, "debiasing": debiasing}
        arguments["optimizer_compute_precisions"] = optimizer_compute_precisions
        super().__init__(learning_rate, **arguments, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.exclude_from_weight_decay = exclude_from_weight_decay
        self.exclude_from_layer_adaptation = exclude_from_layer_adaptation
        self.weight_norm_clip = weight_norm_clip

    def _step(self, m: tf.Tensor, v: tf.Tensor, rate: tf.Tensor, variable: Any) -> tf.Tensor:
        unbiased_m, unbiased_v = self._corrections(m.dtype)
        step = (m / unbiased_m) / (tf.sqrt(v / unbiased_v) + self.epsilon)
        undecayed, unadapted = self.exclude_from_weight_decay, self.exclude_from_layer_adaptation
        if self.weight_decay_rate and not self._named(variable, undecayed):
            step += self.weight_decay_rate * tensor(variable, m.dtype)
        if self._named(variable, undecayed if unadapted is None else unadapted):
            return rate * step
        dtype = self.optimizer_compute_precisions[2]
        norm, length = (tf.norm(tensor(each, dtype)) for each in (variable, step))
        if self.weight_norm_clip is not None:
            norm = tf.minimum(norm, tf.cast(self.weight_norm_clip, norm.dtype))
        ratio = tf.where((norm > 0) & (length > 0), norm / length, tf.ones([], norm.dtype))
        return tf.cast(ratio, m.dtype) * rate * step

    def _named(self, variable: Any, expressions: Sequence[str] | None) -> bool:
        """Whether a variable's name has one of the regular expressions in it."""
        name = self._names[self._index(variable)]
        return any(re.search(expression, name) for expression in expressions or ())
