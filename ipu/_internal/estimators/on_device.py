"""The base of estimators on the device: the infeed, one program for each run, and its results on the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.training.training_util import _get_or_create_global_step_read

from engine.errors import ConfigurationError
from engine.ir.device_operations import CROSS_REPLICA_MEAN, CROSS_REPLICA_SUM
from ipu import ipu_compiler
from ipu._internal.compiler.collectives import cross_replica_sum
from ipu._internal.compiler.graph_structure import nested_operations, origin
from ipu._internal.compiler.processes import transport_of_functions
from ipu._internal.estimators.estimator import Estimator
from ipu._internal.estimators.hooks import EndOfData
from ipu._internal.estimators.ipu_run_config import RunConfig
from ipu._internal.estimators.specs import EstimatorSpec, ModeKeys
from ipu._internal.types import Nest
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu.ops.summary_ops import ipu_compile_summary
from ipu.scopes import ipu_scope

v1 = tf.compat.v1
LEAST_BYTES = 1 << 20
ASSIGNMENTS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})


class DeviceEstimator(Estimator):
    """An estimator whose runs are loops on an IPU; subclasses build the program of each mode."""

    _config_class = RunConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ipu = self._config.ipu_run_config
        self._iterations_per_loop = self._ipu.iterations_per_loop

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Any:
        """Yields predictions for the features of a data set.

        Args:
            input_fn: a function that returns a tf.data.Dataset of features, or of tuples that begin with them.
            predict_keys: a list of the keys of predictions to yield, or one key; None means all.
            hooks: SessionRunHooks.
            checkpoint_path: a checkpoint; None means the latest one, or initial values where there is none.
            yield_single_examples: whether examples are yielded, and not batches.
            num_predictions: the number of predictions (batches if not `yield_single_examples`) after which to stop;
                None means the end of the data set, which must be the end of a loop.

        Yields:
            The predictions of an example, or of a batch: an array, or a dictionary of arrays.

        Raises:
            ValueError: (at the first prediction) `num_predictions` is below 1, one of `predict_keys` is no prediction,
                or `input_fn` returns no data set; (later) predictions are of different batch sizes, or the batches of
                the data set fill no whole number of loops.
            TypeError: (at the first prediction) a hook is no SessionRunHook.
        """
        predictions: Any = super().predict(input_fn, predict_keys, hooks, checkpoint_path, yield_single_examples)
        if num_predictions is not None and num_predictions < 1:
            raise ConfigurationError(f"Expected num_predictions to be 1 or more, or None. Received: {num_predictions}.")
        for number, prediction in enumerate(predictions, start=1):
            yield prediction
            if number == num_predictions:
                predictions.close()

    def _spec(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, list[Any], EndOfData]:
        if self._ipu.ipu_options is not None:
            self._ipu.ipu_options.configure_ipu_system()
        ordinal, depth = self._ipu.ordinal, self._ipu.prefetch_depth
        with self._graph():  # not the model's graph, which is written to files: arrays of the data are constants
            with fed_arrays() as arrays:
                dataset = self._call_input_fn(input_fn, mode)
            if not isinstance(dataset, tf.data.Dataset):
                raise ConfigurationError(f"Expected input_fn to return a tf.data.Dataset. Received: {dataset!r}.")
            infeed = IPUInfeedQueue(dataset, device_ordinal=ordinal, prefetch_depth=depth)
            end = EndOfData(
                *(infeed.initializer, dataset.cardinality(), lambda: self._batches_of(input_fn, mode)),
                *(self._iterations_per_loop * self._ipu.num_replicas, arrays),
            )
        build = {ModeKeys.TRAIN: self._train_spec, ModeKeys.EVAL: self._eval_spec, ModeKeys.PREDICT: self._predict_spec}
        spec = build[mode](infeed)
        return spec, [end], end

    @abstractmethod
    def _train_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        """The training program with its loss, and an operation that also increases the global step."""

    @abstractmethod
    def _eval_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        """The evaluation program with its loss and metrics."""

    @abstractmethod
    def _predict_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        """The prediction program, whose predictions are those of all its batches, [batches, ...]."""

    def _batches_of(self, input_fn: Callable[..., Any], mode: str) -> int:
        with tf.Graph().as_default(), v1.Session() as session:
            count = self._call_input_fn(input_fn, mode).reduce(tf.constant(0, tf.int64), lambda n, _: n + 1)
            session.run(v1.tables_initializer())
            return int(session.run(count))

    def _compiled(self, net: Callable[[], Any]) -> list[tf.Tensor]:
        """The results of `net`, one program on the device, in the default graph, and its number of replicas."""
        expected = self._ipu.num_replicas

        def counted() -> list[Any]:
            results = net()
            return [cross_replica_sum(tf.constant(1, tf.int32)), *(results if isinstance(results, list) else [results])]

        with ipu_scope(f"/device:IPU:{self._ipu.ordinal}"):
            replicas, *results = ipu_compiler.compile(counted)
        for variable in v1.global_variables():
            if variable.initializer.graph is not v1.get_default_graph():
                raise ConfigurationError(
                    f"Expected model_fn to leave initial values as they are. Received: {variable.name!r}, initialised "
                    "in the device's program, as by tf.train.init_from_checkpoint. Use warm_start_from."
                )
        transport = transport_of_functions()
        replicas = replicas if transport is None else replicas // transport.size  # those of this process
        if self._ipu.compile_summary:
            ipu_compile_summary("compile_summary", replicas, collections=[v1.GraphKeys.SUMMARIES])
        text = f"Expected a model with {self._ipu.num_shards} shards, for {expected} replicas. Received replicas:"
        with tf.control_dependencies([v1.Assert(tf.equal(replicas, expected), [text, replicas])]):
            return [tf.identity(result) for result in (*results, replicas)]

    def _trained(self, loss: tf.Tensor, after: Any, hooks: Any) -> EstimatorSpec:
        """The spec of a training program with that loss; `after` are operations to execute in the same run."""
        seen_by_hooks = _get_or_create_global_step_read()  # always that before the run
        with tf.control_dependencies([loss, *after, seen_by_hooks]):
            train_op = v1.train.get_global_step().assign_add(self._iterations_per_loop, read_value=False)
        return EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=train_op, training_hooks=hooks)

    def _outfeed(self, mode: IPUOutfeedMode = IPUOutfeedMode.ALL) -> IPUOutfeedQueue:
        return IPUOutfeedQueue(mode, device_ordinal=self._ipu.ordinal)

    def _dequeued(self, outfeed: IPUOutfeedQueue, after: Any, is_last: bool = False) -> Any:
        """Tensors [iterations * replicas, ...] that a program, whose results are `after`, has enqueued.

        Those of the last iteration have no axis, or [replicas, ...] if there are several.
        """
        replicas = [self._ipu.num_replicas] if self._ipu.num_replicas > 1 else []
        with tf.control_dependencies(tf.nest.flatten(after)):
            rows = outfeed.dequeue()
        leaves = zip(tf.nest.flatten(rows), outfeed._specs, strict=True)
        shaped = [tf.reshape(leaf, [*(replicas if is_last else [-1]), *spec.shape.as_list()]) for leaf, spec in leaves]
        return tf.nest.pack_sequence_as(rows, shaped)

    def _batches(self, predictions: Nest) -> list[Any]:
        if not isinstance(predictions, dict):
            return list(predictions)
        return [dict(zip(predictions, values, strict=True)) for values in zip(*predictions.values(), strict=True)]

    def _check_updates(self, what: str, first: int = 0) -> None:
        """Checks that operations from `first` on, of the latest step or of the host, do not assign the global step."""
        operations = v1.get_default_graph().get_operations()[first:]
        step = v1.train.get_global_step().handle
        for operation, inputs in nested_operations(operations):
            if operation.type in ASSIGNMENTS and origin(inputs[0]) is step:
                raise ConfigurationError(
                    f"Expected {what} to leave the global step to the estimator. Received: {operation.name!r}, which "
                    "changes it. Leave out the argument global_step of minimize and apply_gradients."
                )


def is_averaged(graph: tf.Graph) -> bool:
    """Whether operations of a traced function, or of one that it calls, reduce over replicas."""
    text = str(graph.as_graph_def())
    return CROSS_REPLICA_MEAN in text or CROSS_REPLICA_SUM in text


def with_examples(rows: Nest) -> Any:
    """Tensors [batches, batch, ...] as [batches * batch, ...]; scalars of each batch stay [batches]."""

    def joined(row: tf.Tensor) -> tf.Tensor:
        return tf.reshape(row, [-1, *row.shape.as_list()[2:]]) if row.shape.rank > 1 else row

    return tf.nest.map_structure(joined, rows)


@contextmanager
def fed_arrays() -> Iterator[dict[Any, np.ndarray]]:
    """Puts placeholders in place of large arrays in the default graph, but not in functions; yields the arrays.

    Constants would be copied, and end at 2 GB.
    """
    graph, create = v1.get_default_graph(), ops._create_graph_constant
    arrays: dict[Any, np.ndarray] = {}

    def fed(value: Any, dtype: Any, shape: Any, *arguments: Any, **named: Any) -> tf.Tensor:
        is_large = isinstance(value, np.ndarray) and value.nbytes >= LEAST_BYTES and shape is None
        if not is_large or v1.get_default_graph() is not graph or value.dtype.kind not in "biuf":
            return create(value, dtype, shape, *arguments, **named)
        placeholder = v1.placeholder(dtype or value.dtype, value.shape)
        arrays[placeholder] = value.copy()  # a session would see later changes
        return placeholder

    ops._create_graph_constant = fed
    try:
        yield arrays
    finally:
        ops._create_graph_constant = create
