"""Automatic loss scaling: a factor that follows the size of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.marks import in_marked_step, mark_total
from ipu._internal.compiler.replica_reduction import sums_of_replicas
from ipu._internal.operators.gradient_capture import captured_gradients
from ipu._internal.types import TensorLike
from keras_ext.layers.definition import Definition
from keras_ext.layers.errors import LayerArgumentError
from keras_ext.optimizers.states import tensor
from keras_ext.types import Config, Tensor

STATES = {"loss_scaling_factor": (), "gradients_by_size": (2,), "steps_of_period": (), "share_of_large": ()}
"""Names and shapes of the variables, which are float32."""


class ALSOptimizer(Definition):
    """Applies an optimizer to a loss times a factor, and divides the gradients by it again.

    Every `update_frequency` updates, the factor is divided by `increase_factor` if more than `ratio_threshold` of the
    scaled gradients' elements, of any dtype, were above `histogram_bin_edge` or NaN. Otherwise the factor is multiplied
    by `increase_factor`. It stays at least 1 and less than `max_loss_scaling_factor`.

    Args:
        opt: the optimizer of the same Keras.
        initial_loss_scaling_factor: a power of two, at least 1.
        update_frequency: the number of updates between those of the factor.
        increase_factor: a power of two, more than 1.
        max_loss_scaling_factor: a power of two, more than the initial factor times `increase_factor`.
        accumulate_statistics_over_update_period: whether all updates of the period count, or the last alone.
        ratio_threshold: the share of large elements, between 0 and 1.
        captured_grads_only: whether only gradients count that `CaptureUpstreamGradients` and
            `CaptureActivationGradients` capture: those of each micro-batch, in place of the whole update's.
        lpf_alpha: the weight of former periods in the share of large elements, in [0, 1); 0 counts only the last one.
        histogram_bin_edge: the size of a scaled gradient's element above which it is large.
        name: the name of the optimizer.

    Raises:
        ValueError: an argument has another value, or `opt` is a loss scaling optimizer.
    """

    settings = (
        *("update_frequency", "increase_factor", "max_loss_scaling_factor", "ratio_threshold", "lpf_alpha"),
        *("accumulate_statistics_over_update_period", "histogram_bin_edge", "initial_loss_scaling_factor"),
        "captured_grads_only",
    )

    def __init__(
        self,
        opt: Any,
        initial_loss_scaling_factor: float = 1,
        update_frequency: int = 8,
        increase_factor: float = 2,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 1e-5,
        captured_grads_only: bool = False,
        lpf_alpha: float = 0.0,
        histogram_bin_edge: float = 2**13,
        name: str = "ALSOptimizer",
    ) -> None:
        initial, largest = initial_loss_scaling_factor, max_loss_scaling_factor
        _require(not hasattr(opt, "inner_optimizer"), "an optimizer without loss scaling", type(opt).__name__)
        _require(_power(initial) and initial >= 1, "initial_loss_scaling_factor to be a power of two", initial)
        _require(_power(increase_factor) and increase_factor > 1, "increase_factor to be 2, 4, ...", increase_factor)
        above = f"max_loss_scaling_factor to be a power of two above {initial * increase_factor}"
        _require(_power(largest) and largest > initial * increase_factor, above, largest)
        _require(int(update_frequency) == update_frequency >= 1, "update_frequency of at least 1", update_frequency)
        _require(0 < ratio_threshold < 1, "ratio_threshold between 0 and 1", ratio_threshold)
        _require(0 <= lpf_alpha < 1, "lpf_alpha of at least 0 and less than 1", lpf_alpha)
        _require(histogram_bin_edge > 0, "a positive histogram_bin_edge", histogram_bin_edge)
        if self._of_keras3():
            super().__init__(opt, initial_scale=float(initial), name=name)
        else:
            super().__init__(opt, False, float(initial))
            self.__dict__["name"] = name
        values = {"loss_scaling_factor": initial}
        constant = self.framework.initializers.Constant
        owner = self if self._of_keras3() else opt  # a loss scaling optimizer of tf_keras has its inner one's variables
        for state, shape in STATES.items():
            initializer = constant(float(values.get(state, 0)))
            # Attributes set in the usual way would be tracked a second time.
            self.__dict__[f"_{state}"] = owner.add_variable(
                shape=shape, initializer=initializer, dtype="float32", name=state
            )
        self.initial_loss_scaling_factor = initial
        self.update_frequency = update_frequency
        self.increase_factor = increase_factor
        self.max_loss_scaling_factor = largest
        self.accumulate_statistics_over_update_period = accumulate_statistics_over_update_period
        self.ratio_threshold = ratio_threshold
        self.captured_grads_only = bool(captured_grads_only)
        self.lpf_alpha = lpf_alpha
        self.histogram_bin_edge = histogram_bin_edge

    @classmethod
    def base_class(cls, framework: ModuleType) -> Any:
        """The loss scaling optimizer that Keras' steps recognise.

        Args:
            framework: the module `keras` or `tf_keras`.

        Returns:
            Its class to derive from.
        """
        if framework.__name__ == "keras":
            return framework.optimizers.LossScaleOptimizer
        from tf_keras.src.mixed_precision.loss_scale_optimizer import LossScaleOptimizerV3  # of tf_keras alone

        return LossScaleOptimizerV3

    def _of_keras3(self) -> bool:
        return bool(self.framework.__name__ == "keras")

    @property
    def loss_scaling_factor(self) -> tf.Tensor:
        """The factor, a float32 scalar."""
        return tf.convert_to_tensor(self._loss_scaling_factor)

    @property
    def loss_scale(self) -> tf.Tensor:
        """The factor under tf_keras' name."""
        return self.loss_scaling_factor

    def scale_loss(self, loss: Tensor) -> tf.Tensor:
        """Scales a loss, as a step of Keras 3 asks for it.

        Args:
            loss: the loss, of a floating-point type.

        Returns:
            The loss times the factor, of the same shape and dtype.
        """
        return loss * tf.cast(self.loss_scaling_factor, loss.dtype)

    def build(self, var_list: Sequence[Any]) -> None:
        """Creates the inner optimizer's variables.

        Args:
            var_list: the variables to optimize.
        """
        self.inner_optimizer.build(var_list)
        if self._of_keras3():
            self.framework.optimizers.Optimizer.build(self, var_list)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Applies scaled gradients, in Keras 3.

        Args:
            grads: gradients of the scaled loss, None for a variable without one.
            trainable_variables: the variables, in the order of `grads`; None for those the optimizer is built for.

        Raises:
            ValueError: no gradient is given, or, with `captured_grads_only`, captured in the step.
        """
        if not self.built:
            self.build(trainable_variables or ())
        factor = self.loss_scaling_factor
        unscaled = [_unscaled(each, factor) for each in grads]
        self._observe(unscaled)
        self.inner_optimizer.apply(unscaled, trainable_variables)

    def apply_gradients(self, grads_and_vars: Iterable[Any], **kwargs: Any) -> Any:
        """Applies gradients, and updates the factor at the end of a period.

        Args:
            grads_and_vars: pairs of gradient and variable; gradients are scaled ones in Keras 3, those of
                `compute_gradients` in tf_keras.
            **kwargs: arguments of the `apply_gradients` of this Keras.

        Returns:
            In Keras 3 `iterations`, the variable that counts updates. In tf_keras what its `apply_gradients` returns.

        Raises:
            ValueError: no gradient is given, or, with `captured_grads_only`, captured in the step.
        """
        pairs = list(grads_and_vars)
        if not self._of_keras3():
            self._observe([gradient for gradient, _ in pairs])
        returned = super().apply_gradients(pairs, **kwargs)
        return self.iterations if self._of_keras3() else returned

    def _observe(self, gradients: Sequence[Any]) -> None:
        """Counts the elements of unscaled gradients, and updates the factor at the end of a period."""
        factor = self.loss_scaling_factor
        if self.captured_grads_only:  # of the scaled loss
            captured = list(captured_gradients().values())
            _require(captured, "a step with layers or a context that capture gradients", "no captured gradient")
            count = _by_size(captured, self.histogram_bin_edge)
            count = mark_total(count) if in_marked_step() else count
        else:
            count = _by_size(gradients, self.histogram_bin_edge / factor)
        (count,) = sums_of_replicas([count])  # the factor stays the same on all replicas
        if self.accumulate_statistics_over_update_period:
            count += tf.convert_to_tensor(self._gradients_by_size)
        share = count[1] / tf.reduce_sum(count)
        if self.lpf_alpha:
            before = tf.convert_to_tensor(self._share_of_large)
            share = self.lpf_alpha * before + (1 - self.lpf_alpha) * share
        step = tf.convert_to_tensor(self._steps_of_period) + 1
        due = step >= self.update_frequency
        rate = self.increase_factor
        proposed = tf.where(share > self.ratio_threshold, factor / rate, factor * rate)
        takes = due & (proposed >= 1) & (proposed < self.max_loss_scaling_factor)
        self._loss_scaling_factor.assign(tf.where(takes, proposed, factor))
        self._gradients_by_size.assign(tf.where(due, tf.zeros_like(count), count))
        self._steps_of_period.assign(tf.where(due, 0.0, step))
        self._share_of_large.assign(tf.where(due, share, tf.convert_to_tensor(self._share_of_large)))

    def get_config(self) -> dict[str, Config]:
        """The arguments, and the optimizer as Keras serializes it."""
        own = {name: getattr(self, name) for name in self.settings}
        return {**own, "opt": self.framework.optimizers.serialize(self.inner_optimizer), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Config], custom_objects: dict[str, Any] | None = None) -> Any:
        """Constructs the optimizer, with its inner optimizer, from a configuration.

        Args:
            config: a dictionary of `get_config`.
            custom_objects: classes and functions by the names that `config` has for them, as Keras takes them.

        Returns:
            The optimizer, whose variables have their first values.
        """
        opt = cls.framework.optimizers.deserialize(config["opt"], custom_objects=custom_objects)
        return cls(opt, **{name: value for name, value in config.items() if name != "opt"})


def _unscaled(gradient: Any, factor: tf.Tensor) -> Any:
    """A gradient, IndexedSlices or None divided by the factor."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_unscaled(gradient.values, factor), gradient.indices, gradient.dense_shape)
    return None if gradient is None else gradient / tf.cast(factor, gradient.dtype)


def _by_size(gradients: Iterable[Any], edge: TensorLike) -> tf.Tensor:
    """The numbers of elements of a size up to the edge, and of all others, as float32 [2]."""
    sizes = [tf.abs(tensor(gradient, "float32")) for gradient in gradients if gradient is not None]
    small = tf.add_n([tf.reduce_sum(tf.cast(size <= edge, tf.float32)) for size in sizes])
    return tf.stack([small, sum(tf.cast(tf.size(size), tf.float32) for size in sizes) - small])


def _power(value: float) -> bool:
    """Whether a number is a power of two."""
    return value > 0 and math.frexp(value)[0] == 0.5


def _require(holds: object, expected: str, received: object) -> None:
    if not holds:
        raise LayerArgumentError(f"Expected {expected}. Received: {received}.")


def with_loss_scaling(framework: ModuleType, scaling: type) -> dict[str, Callable[..., Any]]:
    """Functions such as `ALSOptimizerAdam`, of later releases, which wrap a Keras optimizer in an ALSOptimizer."""

    def of(kind: str) -> Callable[..., Any]:
        def optimizer(*arguments: Any, **named: Any) -> Any:
            own = {name: named.pop(name) for name in ALSOptimizer.settings if name in named}
            return scaling(getattr(framework.optimizers, kind)(*arguments, **named), **own)

        optimizer.__name__ = optimizer.__qualname__ = f"ALSOptimizer{kind}"
        optimizer.__doc__ = f"Creates an ALSOptimizer of keras.optimizers.{kind}, and takes arguments of both by name."
        return optimizer

    kinds = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")
    return {f"ALSOptimizer{kind}": of(kind) for kind in kinds}
