"""IPUMultiWorkerStrategy: synchronous training by the workers of a cluster, over gRPC (Python API, 18.9)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.function_trace import in_function_trace
from ipu._internal.compiler.replica_reduction import over_axis, reduced
from ipu._internal.compiler.variables import tracing
from ipu._internal.host_functions.process_sums import summed
from ipu._internal.names.namespace import public_names
from ipu._internal.processes.active import activate
from ipu._internal.processes.collective_ops import CollectiveOps, transport_of
from ipu._internal.processes.transport import Transport
from ipu._internal.types import Nest
from ipu.distributed.popdist_strategy import PopDistExtendedV1
from ipu.ipu_strategy import IPUStrategyV1, _reduce_op

__all__ = [
    "IPUMultiWorkerExtended",
    "IPUMultiWorkerExtendedV1",
    "IPUMultiWorkerStrategy",
    "IPUMultiWorkerStrategyV1",
]
__getattr__, __dir__ = public_names(
    __name__,
    __all__,
    dict.fromkeys(("IPUMirroredVariable", "IPUSyncOnReadVariable"), "ipu.distributed.popdist_strategy"),
)


class IPUMultiWorkerExtendedV1(PopDistExtendedV1):
    """The object that TensorFlow calls back: variables begin with the values of worker 0, reductions are over workers.

    Only worker 0 (the chief, if the cluster has one) writes checkpoints and summaries.

    Args:
        container_strategy: the first strategy that was created for these devices.
        ipu_device: the TensorFlow name of the IPU device, which is the device of variables.
        cpu_device: the TensorFlow name of the host device of the session's task.
    """

    def __init__(self, container_strategy: tf.distribute.Strategy, ipu_device: str, cpu_device: str) -> None:
        super().__init__(container_strategy, ipu_device, cpu_device)
        self._device = cpu_device  # the host device of the session's task

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        self._keeps_on_host = tf.distribute.get_strategy()._variables_on_host
        return super()._create_variable(next_creator, **kwargs)

    def _reduce_to(
        self, reduce_op: tf.distribute.ReduceOp | str, value: Nest, destinations: Nest, options: object
    ) -> Any:
        return self._container_strategy().reduce(reduce_op, value, axis=None)

    def _batch_reduce_to(self, reduce_op: tf.distribute.ReduceOp | str, pairs: Sequence[Any], options: object) -> Any:
        """One collective for the gradients of all variables."""
        return self._container_strategy().reduce(reduce_op, [value for value, _ in pairs], axis=None)

    def _update_config_proto(self, config_proto: tf.compat.v1.ConfigProto) -> tf.compat.v1.ConfigProto:
        transport = self._container_strategy().transport
        copied = super()._update_config_proto(config_proto)
        return transport.cluster.configured(copied) if isinstance(transport, CollectiveOps) else copied

    @property
    def _num_replicas_in_sync(self) -> int:
        return int(self._container_strategy().transport.size)

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds a graph of its own: always True."""
        return True


class IPUMultiWorkerStrategyV1(IPUStrategyV1):
    """Workers, each with a program and replicas of its own, train one model (Python API, 18.9).

    Variables begin with the values of worker 0. Optimizers sum gradients over the replicas of each worker, then once
    over the workers; a CrossReplicaOptimizer replaces the first sum by a mean. Each worker feeds its own part of the
    data. A process that is not one of several workers, such as an evaluator, is alone.

    Args:
        cluster_resolver: the cluster, as `tf.distribute.cluster_resolver.TFConfigClusterResolver()` reads it from
            the environment variable TF_CONFIG.
        ipu_device: the TensorFlow name of the IPU device.
        variables_on_host: whether variables stay in the host's memory, where optimizers then update them.

    Raises:
        ConfigurationError: a cluster with parameter servers, or without this process' task.
    """

    _extended_type = IPUMultiWorkerExtendedV1
    transport: Transport
    collectives_span_processes = False

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:
        self._cluster_resolver = cluster_resolver
        self._variables_on_host = variables_on_host
        self.transport = activate(transport_of(cluster_resolver))
        super().__init__(ipu_device)

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.ClusterResolver:
        """The resolver that the strategy was created with."""
        return self._cluster_resolver

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of workers, by which losses are divided."""
        return self.extended._num_replicas_in_sync

    def without_keras_extensions(self) -> IPUStrategyV1:
        """An interchangeable strategy whose scope does not extend Keras models."""
        made = copy.copy(self)
        made._enable_keras_extensions = False
        return made

    def reduce(self, reduce_op: tf.distribute.ReduceOp | str, value: Nest, axis: int | None = None) -> Any:
        """Returns the sum or mean of each tensor of `value` over the workers, computed on the host.

        In a function that runs on the IPU, the replicas of each worker are reduced, too.

        Args:
            reduce_op: tf.distribute.ReduceOp.SUM or MEAN, or its name.
            value: a tensor or nested tensors, of the same shapes on all workers.
            axis: the dimension of each tensor that is reduced first; None keeps the shapes.

        Returns:
            The nested tensors, without the dimension `axis`.

        Raises:
            ValueError: `reduce_op` is neither SUM nor MEAN.
        """
        reduce_op = _reduce_op(reduce_op)
        value = over_axis(reduce_op, value, axis)
        inside = reduced(reduce_op, value)
        workers = self.transport.size
        if workers == 1 or (tracing() and not in_function_trace()):
            return inside  # a Keras step is split at its gradients, and reduced over the workers there
        totals = summed([tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(inside)], self.transport)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            totals = [total / tf.cast(workers, total.dtype) for total in totals]
        return tf.nest.pack_sequence_as(value, totals)

    def experimental_run_v2(self, *args: Any, **kwargs: Any) -> Any:
        """Runs like `run`, for programs of TensorFlow 1."""
        return self.run(*args, **kwargs)


IPUMultiWorkerExtended = IPUMultiWorkerExtendedV1
IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1
