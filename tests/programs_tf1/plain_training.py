"""The oracle's optimizers accumulate gradients in variables of TensorFlow, and take replicas as one device."""

from __future__ import annotations

from enum import Enum
from typing import Any

import tensorflow.compat.v1 as v1


def flat(structure: Any) -> list[Any]:
    """The leaves of a structure."""
    return [each for each in v1.nest.flatten(structure) if each is not None]


def split(structure: Any) -> tuple[list[Any], list[Any], Any]:
    """Tensors of a structure, and its operations."""
    leaves = flat(structure)
    operations = [each for each in leaves if isinstance(each, v1.Operation)]
    return [v1.convert_to_tensor(each) for each in leaves if not isinstance(each, v1.Operation)], operations, structure


class Method(Enum):
    """Ways to reduce the gradients of mini-batches to one."""

    SUM = "sum"
    MEAN = "mean"
    RUNNING_MEAN = "running_mean"


GradientAccumulationReductionMethod = Method


class Passed(v1.train.Optimizer):
    """An optimizer that wraps another one."""

    def __init__(self, opt: Any, *_: Any, name: str = "Passed", **__: Any) -> None:
        super().__init__(False, name)
        self._opt = opt

    def compute_gradients(self, *arguments: Any, **named: Any) -> Any:
        """Gradients of the inner optimizer."""
        return self._opt.compute_gradients(*arguments, **named)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        """Applies gradients by the inner optimizer."""
        return self._opt.apply_gradients(grads_and_vars, global_step, name)


class _OfClass(Passed):
    """An optimizer given by its class and arguments, as the original's base class allows."""


CrossReplicaOptimizer = ShardedOptimizer = IPUOptimizer = _OfClass


class MapGradientOptimizer(Passed):
    """Maps gradients before they are applied."""

    def __init__(self, wrapped_optimizer: Any, gradient_mapping_function: Any, name: str = "Map") -> None:
        super().__init__(wrapped_optimizer, name=name)
        self._map = gradient_mapping_function

    def compute_gradients(self, *arguments: Any, **named: Any) -> Any:
        """The mapped gradients."""
        pairs = super().compute_gradients(*arguments, **named)
        return [(self._map(gradient, variable), variable) for gradient, variable in pairs]


class GradientAccumulationOptimizerV2(Passed):
    """An optimizer that sums gradients in variables, and applies them in one of several mini-batches."""

    def __init__(self, opt: Any, num_mini_batches: int = 1, *_: Any, reduction_method: Any = Method.SUM, **__: Any):
        super().__init__(opt, name="Accumulation")
        self._count = num_mini_batches
        self._scale = 1.0 if str(reduction_method).lower().rpartition(".")[2] == "sum" else 1.0 / num_mini_batches

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        """Applies the sum or the mean of all gradients in the last mini-batch."""
        pairs = [(v1.convert_to_tensor(gradient), v) for gradient, v in grads_and_vars if gradient is not None]
        with v1.init_scope(), v1.variable_scope("accumulation", reuse=v1.AUTO_REUSE):
            make = lambda shape, kind: v1.Variable(v1.zeros(shape, kind), trainable=False, use_resource=True)  # noqa: E731
            sums, count = [make(v.shape, v.dtype.base_dtype) for _, v in pairs], make([], v1.int32)
        added = [total.assign_add(gradient * self._scale).op for total, (gradient, _) in zip(sums, pairs, strict=True)]
        with v1.control_dependencies(added):
            number = count.assign_add(1)

        def apply() -> Any:
            totals = [total.read_value() for total in sums]
            done = self._opt.apply_gradients(
                [(total, v) for total, (_, v) in zip(totals, pairs, strict=True)], global_step, name
            )
            with v1.control_dependencies([done]):
                cleared = [total.assign(v1.zeros_like(total)).op for total in sums]
            with v1.control_dependencies(cleared):
                return v1.constant(True)

        return v1.cond(v1.equal(number % self._count, 0), apply, lambda: v1.constant(False)).op


GradientAccumulationOptimizer = GradientAccumulationOptimizerV2
CrossReplicaGradientAccumulationOptimizer = GradientAccumulationOptimizerV2
CrossReplicaGradientAccumulationOptimizerV2 = GradientAccumulationOptimizerV2
