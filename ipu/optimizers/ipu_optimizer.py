"""The base of all optimizers that wrap another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.conversion import converted
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike, Variable

__all__ = ["IpuOptimizer"]
__getattr__, __dir__ = public_names(__name__, __all__)

Pairs = Iterable[tuple[Any, Any]]
"""(gradient, variable); a gradient may be None."""


class IpuOptimizer(tf.compat.v1.train.Optimizer):
    """The wrapper interface for `tf.compat.v1.train.Optimizer` optimizers (Python API, 18.15.1).

    All methods forward to the wrapped optimizer; wrappers override those they change.

    Args:
        opt: the optimizer to be wrapped.
        name: the name to be passed to the Optimizer constructor; the class's name by default.

    Raises:
        ValueError: `opt` is no `tf.compat.v1.train.Optimizer`: a Keras optimizer, for instance.
    """

    def __init__(self, opt: tf.compat.v1.train.Optimizer, name: str | None = None) -> None:
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise ConfigurationError(
                f"Expected a subclass of tf.compat.v1.train.Optimizer in {type(self).__name__}. Received: "
                f"{type(opt).__module__}.{type(opt).__qualname__}. Nearest: "
                f"tf.compat.v1.train.GradientDescentOptimizer; for Keras models use "
                f"model.set_gradient_accumulation_options."
            )
        super().__init__(False, name or type(self).__name__)
        self._opt = opt

    def compute_gradients(
        self, loss: TensorLike, var_list: Iterable[Variable] | None = None, **kwargs: object
    ) -> list[tuple[Any, Any]]:
        """The (gradient, variable) pairs of the wrapped optimizer.

        Args:
            loss: the tensor to differentiate.
            var_list: the variables; needed inside a tf.function.
            **kwargs: further arguments of the wrapped optimizer's method.

        Returns:
            A list of (gradient, variable).
        """
        return converted(self._opt.compute_gradients)(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Pairs, global_step: tf.Tensor | None = None, name: str | None = None
    ) -> Any:
        """Applies gradients with the wrapped optimizer.

        Args:
            grads_and_vars: pairs, as `compute_gradients` returns them.
            global_step: a variable to increment by one after the variables have been updated.
            name: optional name of the operation.

        Returns:
            An operation.

        Raises:
            ValueError: `grads_and_vars` has no gradient.
        """
        return converted(self._opt.apply_gradients)(grads_and_vars, global_step=global_step, name=name)

    def get_name(self) -> str:
        """The name of the wrapped optimizer."""
        return self._opt.get_name()

    def get_slot(self, *args: object, **kwargs: object) -> Any:
        """A slot of the wrapped optimizer, None if it has not created one."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: object, **kwargs: object) -> list[str]:
        """The names of the wrapped optimizer's slots."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """The variables of the wrapped optimizer."""
        return self._opt.variables()
