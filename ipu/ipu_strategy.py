"""IPUStrategy: the tf.distribute strategy that puts variables and functions on the device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, one_device_strategy
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops

from ipu._internal import keras_hooks
from ipu._internal.compiler import direct_calls
from ipu._internal.compiler.calling import call_on_engine, refuse_doubles
from ipu._internal.compiler.processes import transport_of
from ipu._internal.compiler.replica_reduction import over_axis, reduced
from ipu._internal.compiler.variables import IPUVariable
from ipu._internal.config.system import ordinal_named
from ipu._internal.conversion import converted
from ipu._internal.names.namespace import public_names
from ipu._internal.processes.transport import Transport
from ipu._internal.queues import dataset_iterators
from ipu._internal.serving.exported_functions import exported_function
from ipu._internal.types import Function, Nest, Variable

__all__ = ["IPUExtendedV1", "IPUStrategy", "IPUStrategyV1"]
__getattr__, __dir__ = public_names(__name__, __all__)

_VARIABLE_ARGUMENTS = frozenset(inspect.signature(resource_variable_ops.ResourceVariable.__init__).parameters)


class IPUExtendedV1(one_device_strategy.OneDeviceExtended):
    """The object that TensorFlow calls back; one for each device, shared by all strategies for it.

    Args:
        container_strategy: the first strategy that was created for these devices.
        ipu_device: the TensorFlow name of the IPU device, which is the device of variables.
        cpu_device: the TensorFlow name of the host device, on which TensorFlow places operations.
    """

    _keeps_on_host = False
    """Whether variables are TensorFlow's own, in the host's memory."""

    def __init__(self, container_strategy: tf.distribute.Strategy, ipu_device: str, cpu_device: str) -> None:
        super().__init__(container_strategy, cpu_device)
        self._ipu_device = ipu_device

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        if kwargs.get("initial_value") is None and kwargs.get("shape") is not None and kwargs.get("dtype") is not None:
            # A SavedModel is being loaded: it creates its variables first and restores their values afterwards.
            kwargs["initial_value"] = functools.partial(tf.zeros, kwargs["shape"], kwargs["dtype"])
        if self._keeps_on_host or not is_liftable(kwargs.get("initial_value")):
            return super()._create_variable(next_creator, **kwargs)
        variable = device_variable(kwargs, self._device)
        variable._ipu_device = f"/job:localhost/replica:0/task:0{self._ipu_device}"
        return variable

    def variable_created_in_scope(self, v: Variable) -> bool:
        """Whether programs of the strategy take the variable as their own.

        Args:
            v: a variable.

        Returns:
            True for a variable that was created in the scope of a strategy for this device, or outside of all scopes.
            A variable created outside is copied to the device before each execution, and back.
        """
        strategy = v._distribute_strategy
        return strategy is None or strategy.extended is self

    def _validate_colocate_with_variable(self, colocate_with_variable: Variable) -> None:
        if not self.variable_created_in_scope(colocate_with_variable):
            super()._validate_colocate_with_variable(colocate_with_variable)

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls `fn` in the replica context of the strategy in scope.

        TensorFlow would take the first strategy created for the device, but a random generator can only be used under
        the strategy that it was created in.

        Args:
            fn: any callable; it is called once, as TensorFlow sees one replica.
            args: positional arguments of `fn`.
            kwargs: keyword arguments of `fn`.

        Returns:
            What `fn` returns.

        Raises:
            RuntimeError: called in a replica context, or in the scope of another strategy.
        """
        distribute_lib._require_cross_replica_or_default_context_extended(self)
        strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else self._container_strategy()
        with ops.device(self._device), one_device_strategy._OneDeviceReplicaContext(strategy):
            return converted(fn)(*args, **(kwargs or {}))

    def _experimental_distribute_dataset(self, dataset: tf.data.Dataset, options: object) -> Any:
        return dataset

    def _reduce_to(
        self, reduce_op: tf.distribute.ReduceOp | str, value: Nest, destinations: Nest, options: object
    ) -> Any:
        return reduced(reduce_op, value)


def is_liftable(initial_value: object) -> bool:
    """Whether a variable can be eager, as device variables are, given its initial value or the function of that."""
    with ops.init_scope():
        eager = tf.executing_eagerly()
    return eager and (callable(initial_value) or not tf.is_tensor(initial_value) or hasattr(initial_value, "numpy"))


def device_variable(arguments: Mapping[str, Any], device: str) -> IPUVariable:
    """Makes a device variable whose host copy is on `device`, from the arguments of TensorFlow's variable creators."""
    with ops.init_scope(), ops.device(device):
        return IPUVariable(**{name: value for name, value in arguments.items() if name in _VARIABLE_ARGUMENTS})


# The first strategy for a device keeps its `extended` alive: TensorFlow distinguishes strategies by this object.
_extended: dict[tuple[type, str, str], tuple[tf.distribute.Strategy, IPUExtendedV1]] = {}


class IPUStrategyV1(tf.distribute.Strategy):
    """Models and functions created in this strategy's scope run on the IPU.

    Strategies for the same device are interchangeable, and their scopes nest.

    Args:
        ipu_device: the TensorFlow name of the IPU device.
        cpu_device: the TensorFlow name of the host device.
        enable_dataset_iterators: whether `iter(dataset)` inside the scope creates an infeed.
        enable_keras_extensions: whether Keras models created inside the scope run on the IPU.

    Raises:
        ConfigurationError (a ValueError): `ipu_device` names no IPU.
    """

    _collective_key_base = 0
    _extended_type = IPUExtendedV1
    transport: Transport | None = None
    """The transport between the processes that the strategy's programs span; None: the configuration's transport."""
    serves_functions = True
    """Whether the engine runs a tf.function(jit_compile=True) that is called directly in the scope."""
    collectives_span_processes = True
    """Whether collectives in functions are over the replicas of all processes, not only of this one."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        ordinal_named(ipu_device)
        key = (self._extended_type, ipu_device, cpu_device)
        if key not in _extended:
            _extended[key] = (self, self._extended_type(self, ipu_device, cpu_device))
        super().__init__(_extended[key][1])
        self._ipu_device = ipu_device
        self._cpu_device = cpu_device
        self._enable_dataset_iterators = enable_dataset_iterators
        self._enable_keras_extensions = enable_keras_extensions
        dataset_iterators.install()
        direct_calls.install(_run_directly)
        if enable_keras_extensions:
            keras_hooks.install()

    @property
    def num_replicas_in_sync(self) -> int:
        """Always 1: TensorFlow does not see replicas, so Keras divides no loss by their number."""
        return 1

    @property
    def ordinal(self) -> int:
        """The ordinal of the strategy's IPU device among those configured."""
        return ordinal_named(self._ipu_device)

    @property
    def supports_loss_scaling(self) -> bool:
        """Whether optimizers may scale the loss: always True."""
        return True

    @property
    def serves_keras(self) -> bool:
        """Whether Keras models created in this strategy's scope run on the IPU."""
        return self._enable_keras_extensions

    def without_keras_extensions(self) -> IPUStrategyV1:
        """An interchangeable strategy whose scope does not extend Keras models."""
        return IPUStrategyV1(
            self._ipu_device, self._cpu_device, self._enable_dataset_iterators, enable_keras_extensions=False
        )

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        options: tf.distribute.RunOptions | None = None,
    ) -> Any:
        """Runs a tf.function on the IPU and returns its result, as tensors.

        Inside a tf.function any callable is accepted and traced with it. Results are those of replica 0. The result of
        an export for serving, or the signature of its SavedModel, runs its program on the engine and the steps before
        and after it on the host.

        Args:
            fn: a tf.function; inside a tf.function any callable; or what an export for serving returned.
            args: positional arguments of `fn`: tensors, queues, or Python values; each new Python value is traced.
            kwargs: keyword arguments of `fn`.
            options: accepted, and has no effect on the device.

        Returns:
            What `fn` returns, of replica 0, as tensors.

        Raises:
            ValueError: a plain Python function called eagerly.
            TypeError: tensors of dtype float64 among the arguments or results.
            UnsupportedOperation: operations that XLA refuses.
            tf.errors.OutOfRangeError: an infeed's data set has ended; other errors of a data set are raised unchanged.
        """
        if not tf.executing_eagerly():
            replica = tf.distribute.get_replica_context()
            if replica is not None and replica.strategy.extended is self.extended:
                return converted(fn)(*args, **(kwargs or {}))
            return super().run(fn, args=args, kwargs=kwargs, options=options)
        exported = exported_function(fn)
        if exported is not None:
            refuse_doubles((args, kwargs))
            with self.scope():
                return exported(*args, **(kwargs or {}))
        if isinstance(fn, ConcreteFunction):
            fn = _calling(fn)
        if not isinstance(fn, polymorphic_function.Function):
            raise ValueError(
                f"IPUStrategy.run does not support eager execution. Expected a tf.function. "
                f"Received: {getattr(fn, '__name__', fn)!r}. Wrap it in @tf.function(jit_compile=True)."
            )
        refuse_doubles((args, kwargs))
        return self._call(fn, tuple(args), dict(kwargs or {}), refuse_doubles)

    def _call(
        self, fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any], check: Callable[[Any], None] | None
    ) -> Any:
        with self.scope():
            arguments = (fn, args, kwargs, self.ordinal, check)
            return self.extended.call_for_each_replica(call_on_engine, arguments)

    def experimental_run_v2(self, *args: object, **kwargs: object) -> Any:
        """Raises RuntimeError, as the method was removed; use `run`.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("Expected IPUStrategy.run. Received: experimental_run_v2, which was removed. Use run.")

    def reduce(self, reduce_op: tf.distribute.ReduceOp | str, value: Nest, axis: int | None) -> Any:
        """Returns the sum or mean of `value` over the replicas in a function called by `run`; elsewhere `value` itself.

        Args:
            reduce_op: tf.distribute.ReduceOp.SUM or MEAN, or its name.
            value: a tensor or nested tensors.
            axis: the dimension of each tensor that is reduced first; None keeps the shapes.

        Returns:
            The nested tensors, without the dimension `axis`.

        Raises:
            ValueError: `reduce_op` is neither SUM nor MEAN.
        """
        reduce_op = _reduce_op(reduce_op)
        return reduced(reduce_op, over_axis(reduce_op, value, axis))

    def experimental_local_results(self, value: Nest) -> tuple[Any, ...]:
        """The tuple `(value,)`.

        Args:
            value: a result of `run`, of any structure.

        Returns:
            A tuple of one item.
        """
        return (value,)

    def distribute_datasets_from_function(self, dataset_fn: Callable[..., Any], options: object = None) -> Any:
        """Calls `dataset_fn` for the input pipeline of this process; each process has one.

        Args:
            dataset_fn: a function of a tf.distribute.InputContext that returns a data set. `input_pipeline_id` is the
                process' rank, `num_input_pipelines` the number of processes.
            options: no effect.

        Returns:
            What `dataset_fn` returns.
        """
        transport = transport_of(self)
        size, rank = (1, 0) if transport is None else (transport.size, transport.rank)
        return dataset_fn(tf.distribute.InputContext(size, rank, self.num_replicas_in_sync))


def _reduce_op(reduce_op: tf.distribute.ReduceOp | str) -> Any:
    named = {"SUM": tf.distribute.ReduceOp.SUM, "MEAN": tf.distribute.ReduceOp.MEAN}
    return named.get(reduce_op.upper(), reduce_op) if isinstance(reduce_op, str) else reduce_op


@functools.lru_cache(maxsize=128)
def _calling(concrete: ConcreteFunction) -> Any:
    """A tf.function that calls a concrete function."""
    return tf.function(lambda *args, **kwargs: concrete(*args, **kwargs), autograph=False)


def _run_directly(fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a function that is called without `run`; returns NotImplemented in the scope of another strategy class."""
    strategy = tf.distribute.get_strategy()
    serves = isinstance(strategy, IPUStrategyV1) and strategy.serves_functions
    return strategy._call(fn, args, kwargs, None) if serves else NotImplemented


IPUStrategy = IPUStrategyV1
