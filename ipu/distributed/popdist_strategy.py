"""PopDistStrategy: the strategy whose programs span the processes of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from ipu._internal.compiler.function_trace import in_function_trace
from ipu._internal.compiler.replica_reduction import over_axis, reduced
from ipu._internal.compiler.variables import IPUVariable, tracing
from ipu._internal.names.namespace import public_names
from ipu._internal.processes import host_collectives, settings
from ipu._internal.processes.active import initialise, is_alone
from ipu._internal.processes.on_read import check_synchronization
from ipu._internal.types import Nest
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUExtendedV1, IPUStrategyV1, _reduce_op

__all__ = ["PopDistExtendedV1", "PopDistStrategy"]
__getattr__, __dir__ = public_names(__name__, __all__)


class _OfSynchronization(type):
    """A metaclass whose isinstance checks how processes synchronize a strategy's variable."""

    on_read: bool

    def __instancecheck__(cls, instance: object) -> bool:
        synchronization = getattr(instance, "synchronization", None)
        return isinstance(instance, IPUVariable) and cls.on_read == (
            synchronization is tf.VariableSynchronization.ON_READ
        )


class IPUMirroredVariable(metaclass=_OfSynchronization):
    """Variables of a strategy that are equal in all processes, for isinstance."""

    on_read = False


class IPUSyncOnReadVariable(metaclass=_OfSynchronization):
    """Variables of a strategy that have values of their own in each process, for isinstance."""

    on_read = True


class PopDistExtendedV1(IPUExtendedV1):
    """The object that TensorFlow calls back: variables begin with the values of process 0.

    Args:
        container_strategy: the first strategy that was created for these devices.
        ipu_device: the TensorFlow name of the IPU device, which is the device of variables.
        cpu_device: the TensorFlow name of the host device, on which TensorFlow places operations.
    """

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        initial = kwargs.get("initial_value")
        if not is_alone() and initialise().size > 1:
            check_synchronization(kwargs.get("synchronization"), kwargs.get("aggregation"), kwargs.get("name"))
            if initial is not None:
                kwargs["initial_value"] = functools.partial(_of_first, initial, kwargs.get("dtype"), kwargs.get("name"))
        return super()._create_variable(next_creator, **kwargs)

    def _reduce_to(
        self, reduce_op: tf.distribute.ReduceOp | str, value: Nest, destinations: Nest, options: object
    ) -> Any:
        strategy = self._container_strategy()
        if in_function_trace() and not strategy._add_ipu_cross_replica_reductions:
            return value
        return strategy.reduce(reduce_op, value, axis=None)

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints."""
        return bool(self._container_strategy().transport.rank == 0)

    @property
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries."""
        return self.should_checkpoint


def _of_first(initial: Any, dtype: tf.DType | None, name: str | None) -> tf.Tensor:
    """The initial value of process 0."""
    value = tf.convert_to_tensor(initial() if callable(initial) else initial, dtype)
    constant = tensor_util.constant_value(value) if not hasattr(value, "numpy") else None
    if constant is not None and not constant.any():
        return value  # hooks of one process read the initial value of the global step
    return host_collectives.broadcast(value, 0, name or "variable")


class PopDistStrategy(IPUStrategyV1):
    """A strategy whose processes, with equal numbers of replicas, train one model; `python -m ipu.run` starts them.

    Variables created in its scope have the initial values of process 0. Inside functions that run on the IPU, and in
    Keras' `fit` and `evaluate`, reductions are over the replicas of all processes; elsewhere `reduce` is between the
    processes, on the host. Each process feeds its own part of the data. A single process can use the strategy, too.

    Args:
        ipu_device: the TensorFlow name of the IPU device.
        add_ipu_cross_replica_reductions: whether optimizers in functions that run on the IPU sum gradients over
            replicas; if not, call `cross_replica_ops` yourself. Keras' `fit` always sums them.
        enable_dataset_iterators: whether `iter(dataset)` inside the scope creates an infeed.
        enable_keras_extensions: whether Keras models created inside the scope run on the IPU.

    Raises:
        ConfigurationError: a launcher of MPI has started the process, and mpi4py is not installed.
        ProcessError: processes with different versions.
    """

    _extended_type = PopDistExtendedV1

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        self.transport = initialise()
        self._add_ipu_cross_replica_reductions = add_ipu_cross_replica_reductions
        super().__init__(ipu_device, "/device:CPU:0", enable_dataset_iterators, enable_keras_extensions)

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas in all processes, by which Keras divides losses."""
        return settings.total_replicas()

    def without_keras_extensions(self) -> IPUStrategyV1:
        """An interchangeable strategy whose scope does not extend Keras models."""
        return type(self)(
            self._ipu_device,
            self._add_ipu_cross_replica_reductions,
            self._enable_dataset_iterators,
            enable_keras_extensions=False,
        )

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Sets `experimental.multi_replica_distribution` to this process of the run; returns the configuration.

        Args:
            config: the configuration; in a run of a single process it stays as it is.

        Returns:
            `config` itself.

        Raises:
            ConfigurationError: a launcher of MPI has started the process, and mpi4py is not installed.
            ProcessError: processes with different versions.
        """
        transport = initialise()
        if transport.size > 1:
            config.experimental.multi_replica_distribution.process_count = transport.size
            config.experimental.multi_replica_distribution.process_index = transport.rank
        return config

    def reduce(self, reduce_op: tf.distribute.ReduceOp | str, value: Nest, axis: int | None) -> Any:
        """Returns the sum or mean of `value` over all replicas in a function that runs on the IPU, else over processes.

        Args:
            reduce_op: tf.distribute.ReduceOp.SUM or MEAN, or its name.
            value: a tensor or nested tensors, of the same shapes in all processes.
            axis: the dimension of each tensor that is reduced first; None keeps the shapes.

        Returns:
            The nested tensors, without the dimension `axis`. Outside of such functions, a single process
            reduces over `axis` alone.

        Raises:
            ValueError: `reduce_op` is neither SUM nor MEAN.
            ProcessError: another process calls another collective, or has ended.
        """
        reduce_op = _reduce_op(reduce_op)
        value = over_axis(reduce_op, value, axis)
        # A step of Keras that is being traced is cut at its gradients, and they are summed there.
        if tracing() or initialise().size == 1:
            return reduced(reduce_op, value)
        return tf.nest.map_structure(lambda leaf: host_collectives.all_reduce(leaf, reduce_op), value)

    def experimental_run_v2(self, *args: Any, **kwargs: Any) -> Any:
        """Runs like `run`, for programs of TensorFlow 1."""
        return self.run(*args, **kwargs)
