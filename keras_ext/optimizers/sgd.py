"""SGD whose momentum has a dtype of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ext.optimizers.states import WithStates, dtype_name, tensor
from keras_ext.types import Tensor


class SGDIpuOptimizer(WithStates):
    """Keras' SGD, whose momentum may have a dtype of its own.

    Args:
        learning_rate, momentum, nesterov, name, **kwargs: as in Keras' SGD.
        momentum_accum_dtype: the dtype of the momentum's accumulators; None is the variable's.
        optimizer_compute_precisions: the dtype in which steps are computed, in a sequence; float32 unless given.
        outline_apply_gradients, outline_apply_gradients_kwargs: accepted; they have no effect on results.

    Raises:
        ValueError: `optimizer_compute_precisions` is not of one dtype.
    """

    base = "SGD"
    settings = (
        *("momentum_accum_dtype", "optimizer_compute_precisions"),
        *("outline_apply_gradients", "outline_apply_gradients_kwargs"),
    )

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        momentum_accum_dtype: Any = None,
        optimizer_compute_precisions: Sequence[Any] | None = None,
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, momentum=momentum, nesterov=nesterov, name=name, **kwargs)
        self.momentum_accum_dtype = dtype_name(momentum_accum_dtype)
        self._set_precisions(optimizer_compute_precisions)
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = outline_apply_gradients_kwargs

    def build(self, var_list: Sequence[Any]) -> None:
        """Creates the momentum of each variable, zeros, where there is momentum; a second call changes nothing.

        Args:
            var_list: the variables to optimize.
        """
        self._create_states(var_list, {"momentum": self.momentum_accum_dtype} if self.momentum else {})

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Any = None) -> None:
        """Updates a variable and its momentum.

        Args:
            gradient: the gradient, dense or sparse; it is cast to the dtype of the computation.
            variable: the variable, one of those the optimizer is built for.
            learning_rate: a number or scalar tensor; None is the optimizer's own.
        """
        (dtype,) = self.optimizer_compute_precisions
        rate = tensor(self.learning_rate if learning_rate is None else learning_rate, dtype)
        step = -tensor(gradient, dtype) * rate
        for state in self._states(variable):
            velocity = tensor(state, dtype) * self.momentum + step
            state.assign(tf.cast(velocity, state.dtype))
            step = velocity * self.momentum + step if self.nesterov else velocity
        variable.assign_add(tf.cast(step, variable.dtype))
