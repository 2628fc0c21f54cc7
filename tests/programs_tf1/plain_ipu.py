"""Stands for `tensorflow.python.ipu` in an oracle's run: TensorFlow's operations on the CPU, and nothing of the engine.

A program runs as its graph without the IPU's parts: queues are iterators and queues of TensorFlow, loops are
`tf.while_loop`, replicas are one device with the batches of all. One flat module replaces all of the original's.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import tensorflow.compat.v1 as v1

from tests.programs_tf1.plain_training import (
    CrossReplicaOptimizer,
    GradientAccumulationOptimizerV2,
    MapGradientOptimizer,
    Method,
    Passed,
    flat,
    split,
)

NAME = "tensorflow.python.ipu"
PACKAGES = ("ops", "optimizers", "keras", "horovod", "distributed", "data", "eager")
MODULES = (
    *("all_to_all_op", "application_compile_op", "autoshard", "config", "control_flow_ops", "cross_replica_ops"),
    *("custom_ops", "dataset_benchmark", "embedding_ops", "functional_ops", "gradient_accumulation", "image_ops"),
    *("gradient_accumulation_optimizer", "cross_replica_optimizer", "sharded_optimizer", "map_gradient_optimizer"),
    *("internal_ops", "ipu_compiler", "ipu_estimator", "ipu_infeed_queue", "ipu_outfeed_queue", "ipu_run_config"),
    *("ipu_pipeline_estimator", "ipu_session_run_hooks", "ipu_strategy", "loops", "math_ops", "nn_ops", "utils"),
    *("normalization_ops", "pipelining_ops", "rand_ops", "reduce_scatter_op", "replication_ops", "rnn_ops", "scopes"),
    *("ipu_optimizer", "sharding", "slicing_ops", "statistics_ops", "summary_ops", "within_replica_ops"),
)
REPLICAS = int(os.environ.get("PLAIN_REPLICAS", "1"))
"""Number of replicas of a program, whose batches become one."""


class _Module(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in (*PACKAGES, *MODULES):
            return self
        if name.startswith(("set_", "auto_select_ipus", "select_ipus", "configure_", "reset_", "create_ipu_config")):
            return lambda first=None, *_, **__: first
        raise AttributeError(f"The oracle lacks {name}.")


def install() -> None:
    """Puts this module in place of all of the original's, for the program that runs next."""
    from tests.programs_tf1 import plain_estimators, plain_layers, plain_training

    made = _Module(NAME)
    for module in (plain_training, plain_layers, plain_estimators, sys.modules[__name__]):
        vars(made).update({name: value for name, value in vars(module).items() if not name.startswith("__")})
    made.PipelineSchedule = made.RecomputationMode = made.IPUOutfeedMode = Anything
    made.MergeRemoteBuffersBehaviour = made.SelectionOrder = Anything
    names = [NAME, *(f"{NAME}.{each}" for each in (*PACKAGES, *MODULES))]
    names += [f"{NAME}.{package}.{each}" for package in PACKAGES for each in MODULES]
    sys.modules.update(dict.fromkeys(names, made))
    vars(sys.modules["tensorflow.python"])["ipu"] = made


class _AnythingType(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return name

    __getitem__ = __getattr__


class Anything(metaclass=_AnythingType):
    """An enumeration or options without any effect: any name is a member, any attribute may be set."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        vars(self).update(named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "configure_ipu_system":
            return lambda *_: None
        value = vars(self)[name] = Anything()
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        vars(self)[key] = value


IPUConfig = PipelineStageOptions = StochasticRoundingBehaviour = Anything


class IPUOutfeedMode(Enum):
    """Choice of the elements that a dequeue returns."""

    ALL = "all"
    LAST = "last"


class DeviceConnectionType(Enum):
    """Time at which a device is attached."""

    ALWAYS = "always"
    ON_DEMAND = "on_demand"
    NEVER = "never"


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


ipu_scope = ipu_shard = ipu_jit_scope = frontend_attribute = stochastic_rounding = partials_type = _nothing
outside_compilation_scope = _nothing


def automatic_sharding(*_: Any, **__: Any) -> None:
    """Does nothing: there is one device."""


move_variable_initialization_to_cpu = automatic_sharding


def compile(computation: Callable[..., Any], inputs: Any = None) -> Any:
    """The results of a function, computed in the graph."""
    tensors, operations, _ = split(computation(*(v1.identity(v1.convert_to_tensor(each)) for each in inputs or ())))
    with v1.control_dependencies(operations):
        return [v1.identity(each) for each in tensors] if tensors else v1.no_op()


def outlined_function(func: Any = None, **_: Any) -> Any:
    """The function itself."""
    return outlined_function if func is None else func


function = outlined_function


def _joined(batches: Any) -> Any:
    """[replicas, batch, ...] as one batch."""
    return v1.reshape(batches, [-1, *batches.shape[2:].as_list()])


class IPUInfeedQueue:
    """An iterator whose elements combine the batches of all replicas."""

    def __init__(self, dataset: Any, *_: Any, **__: Any) -> None:
        if REPLICAS > 1:
            dataset = dataset.batch(REPLICAS, drop_remainder=True)
            dataset = dataset.map(lambda *e: v1.nest.map_structure(_joined, e[0] if len(e) == 1 else e))
        self._iterator = v1.data.make_initializable_iterator(dataset)
        self.initializer, self.deleter = self._iterator.initializer, v1.no_op()

    def dequeue(self, first: Any) -> tuple[list[Any], dict[str, Any]]:
        """The positional and named arguments of a function: some tensors, and an element."""
        element = self._iterator.get_next()
        if isinstance(element, dict):
            return list(first), element
        return [*first, *(element if isinstance(element, tuple) else (element,))], {}


class IPUOutfeedQueue:
    """A queue, made of one of TensorFlow's."""

    def __init__(self, feed_name: Any = None, outfeed_mode: Any = None, *_: Any, **__: Any) -> None:
        self._is_last = outfeed_mode in ("LAST", IPUOutfeedMode.LAST)
        self._queue, self.together = None, 1
        self.deleter = v1.no_op()

    def enqueue(self, structure: Any) -> Any:
        """Puts the tensors of a structure into the queue."""
        tensors = [v1.convert_to_tensor(each) for each in flat(structure)]
        if self._queue is None:
            with v1.init_scope():
                self._queue = v1.FIFOQueue(1 << 20, [t.dtype for t in tensors], [t.shape for t in tensors])
        self._structure = structure
        return self._queue.enqueue(tensors)

    def dequeue(self, *_: Any, **__: Any) -> Any:
        """All elements of the queue, or the last one; with accumulated outfeeds, sums of `together` elements each."""
        queue, together = self._queue, self.together
        rows = queue.dequeue_many(queue.size())
        rows = rows if isinstance(rows, list) else [rows]
        if self._is_last:
            rows = [each[-1] for each in rows]
        if together > 1:
            rows = [v1.reduce_sum(v1.reshape(row, [-1, together, *row.shape[1:].as_list()]), 1) for row in rows]
        return v1.nest.pack_sequence_as(self._structure, rows)


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: Any = None,
    maximum_iterations: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """TensorFlow's loop, one iteration after the other."""
    first = [] if inputs is None else [*inputs] if isinstance(inputs, list | tuple) else [inputs]
    variables = [v1.constant(0), *map(v1.convert_to_tensor, first)]

    def step(number: Any, *values: Any) -> list[Any]:
        arguments, named = (list(values), {}) if infeed_queue is None else infeed_queue.dequeue(values)
        tensors, operations, _ = split(body(*arguments, **named))
        with v1.control_dependencies(operations):
            return [number + 1, *(v1.identity(each) for each in tensors)]

    _, *last = v1.while_loop(
        lambda _, *values: condition(*values),
        step,
        variables,
        parallel_iterations=1,
        back_prop=False,
        maximum_iterations=maximum_iterations,
        return_same_structure=True,
    )
    return (last if len(last) > 1 else last[0]) if last else v1.group(_)


def repeat(n: Any, body: Any, inputs: Any = None, infeed_queue: Any = None, use_while_v1: bool = True) -> Any:
    """Runs `n` iterations."""
    return while_loop(lambda *_: True, body, inputs, infeed_queue, n)


class OptimizerFunctionOutput:
    """The optimizer and the loss with which a pipeline trains."""

    def __init__(self, opt: Any, loss: Any, *_: Any, **named: Any) -> None:
        self.opt, self.loss, self.named = opt, loss, named


def pipeline(
    computational_stages: Any,
    gradient_accumulation_count: int | None = None,
    gradient_accumulation_dtype: Any = None,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Any = None,
    infeed_queue: Any = None,
    outfeed_queue: Any = None,
    optimizer_function: Any = None,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    reduction_method: Any = Method.SUM,
    pipeline_depth: int | None = None,
    **_: Any,
) -> Any:
    """A loop over micro-batches, in which the stages follow one another and gradients are accumulated."""
    count = (gradient_accumulation_count or pipeline_depth or 1) * batch_serialization_iterations

    def body(*values: Any, **named: Any) -> Any:
        for stage in computational_stages:
            found = stage(*values, **named)
            values, named = (found if isinstance(found, list | tuple) else () if found is None else (found,)), {}
        results, operations, _ = split(values)
        if optimizer_function is not None:
            made = optimizer_function(*results)
            optimizer = GradientAccumulationOptimizerV2(made.opt, count, reduction_method=reduction_method)
            pairs = optimizer.compute_gradients(made.loss, **(made.named.get("compute_gradients_kwargs") or {}))
            train = optimizer.apply_gradients(pairs, **(made.named.get("apply_gradients_kwargs") or {}))
            operations = [*operations, train]
            results = [made.loss] if outfeed_loss else results
        if outfeed_queue is not None and results:
            outfeed_queue.together = count if accumulate_outfeed else 1
            operations = [*operations, outfeed_queue.enqueue(results[0] if outfeed_loss else results)]
        return operations

    constants = list(inputs or [])
    return repeat(count * repeat_count, lambda *e, **n: body(*constants, *e, **n), [], infeed_queue)


__all__ = ["CrossReplicaOptimizer", "MapGradientOptimizer", "Passed", "install"]
