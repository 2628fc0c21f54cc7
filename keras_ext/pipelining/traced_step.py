"""A step of a model traced with the stage of each call of a layer in the names of its operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from engine.errors import AccumulationStepError
from engine.partition.accumulation import Accumulation
from engine.partition.schedule import devices_of
from engine.partition.schedule_checks import legal_count
from ipu._internal.compiler.variables import tracing
from keras_ext.epochs.feeds import BatchSignature, BatchSource
from keras_ext.pipelining.assigned import is_without_stages
from keras_ext.pipelining.calls import calls_of, has_scopes_inside
from keras_ext.pipelining.errors import StageAssignmentError
from keras_ext.pipelining.graphs import Invocation, Where, graphs_of, invocations, replaced
from keras_ext.pipelining.micro_batches import check_pipeline_count, replicas_of_pipeline
from keras_ext.pipelining.options import ModelPipelining, pipelining_of, pipelining_steps
from keras_ext.pipelining.outfeed import accumulated_logs, has_accumulated_logs
from keras_ext.pipelining.stage import refusing_scopes
from keras_ext.pipelining.stage_trees import StageTree, completed
from keras_ext.pipelining.subclasses import outside_traces, traced_graph
from keras_ext.types import Batch, KerasModel, Nest

Mode = Literal["train", "test", "predict"]


def traced_step(model: KerasModel, mode: Mode, data: Batch, step: Callable[[Any, Mode, Any], Any]) -> Any:
    """The results of `step`, traced with its stages if the model is pipelined."""
    pipelining = pipelining_of(model, mode == "train")
    if pipelining is None:
        with contextlib.nullcontext() if is_without_stages(model) else refusing_scopes(_unknown_stages(model)):
            return step(model, mode, data)
    graphs = graphs_of(model)
    if graphs.kind(model) == "sequential":
        with outside_traces(model):
            graphs.build(model, data[0] if isinstance(data, tuple) else data)
    with in_stages(model, pipelining.stages):
        results = step(model, mode, data)
    if not has_accumulated_logs(model, mode):
        return results
    return accumulated_logs(model, mode, results, (pipelining_steps(model) or 1) if mode == "train" else None)


def _unknown_stages(model: KerasModel) -> str:
    return (
        f"Expected {type(model).__name__} {model.name!r} to have no pipeline stages: none were found before its step "
        f"was traced. Call build() on a subclass of Model with the shapes of its inputs first; open PipelineStage "
        f"scopes in the call of the model that is fitted, not in that of its layers."
    )


def inference_micro_batches(
    model: KerasModel, pipelining: ModelPipelining | None, batches: BatchSource
) -> Accumulation:
    """The micro-batches of one execution of `evaluate` or `predict`; one for a model without stages."""
    if pipelining is None:
        return Accumulation()
    replicas = replicas_of_pipeline(model, pipelining)
    return Accumulation(batches.steps // replicas, replicas)


def check_batches_of_pipeline(
    model: KerasModel,
    pipelining: ModelPipelining | None,
    taken: Sequence[BatchSource],
    other_than: Callable[[BatchSignature], BatchSignature | None] = lambda _: None,
) -> None:
    """Raises AccumulationStepError for batches of `evaluate` or `predict` illegal for the model's schedule.

    `other_than` gives the signature of batches before these, if it is another one.
    """
    if pipelining is None:
        return
    replicas = replicas_of_pipeline(model, pipelining)
    before = other_than(taken[0].signature) if taken else None
    for batches in taken:
        what = "the batches of an execution (steps_per_execution, or what there is)"
        try:
            check_pipeline_count(pipelining, batches.steps // replicas, False, what)
        except AccumulationStepError:
            rows = batches.signature.rows
            if before is not None and batches.steps == 1 and rows < before.rows:
                raise _partial_batch_error(pipelining, rows, before.rows, replicas) from None
            raise
        before = batches.signature


def _partial_batch_error(
    pipelining: ModelPipelining, rows: int, batch_size: int, replicas: int
) -> AccumulationStepError:
    number = len(pipelining.devices)
    unit = legal_count(pipelining.schedule, devices_of(number, pipelining.devices), training=False)
    return AccumulationStepError(
        f"Expected whole batches in a pipeline of {number} stages with PipelineSchedule.{pipelining.schedule}, which "
        f"takes a multiple of {unit} of one size in an execution. Received: a partial batch of {rows} samples after "
        f"batches of {batch_size}. Batch the data set with drop_remainder=True, or give arrays whose length is a "
        f"multiple of {unit * replicas * batch_size}; PipelineSchedule.Sequential takes a partial batch."
    )


@contextlib.contextmanager
def in_stages(model: KerasModel, trees: Sequence[StageTree]) -> Iterator[None]:
    """Puts the operations of a model's layers into name scopes of stages while a step is traced; execution is unchanged
    otherwise.

    `trees` has the stage of each call of a layer, in order. Raises StageAssignmentError for a sequential model without
    a graph, and for a `call` whose layers differ from those assigned.
    """
    graphs = graphs_of(model)
    if graphs.kind(model) == "subclass":
        with _calling_graph(model, trees):
            yield
        return
    graph = graphs.graph(model)
    if graph is None:
        raise StageAssignmentError(
            f"Expected a sequential model that takes one tensor. Received: {model.name!r}, which Keras cannot make a "
            "graph of. Write it as a functional model."
        )
    with graphs.running(graph, lambda graph: _positions(model, graph, trees)):
        yield


def _positions(model: KerasModel, graph: KerasModel, trees: Sequence[StageTree]) -> Mapping[int, Where]:
    graphs = graphs_of(model)
    calls = invocations(graphs, graph)
    assigned = _of_layers(model, calls) if graphs.kind(model) == "sequential" else calls
    if len(assigned) != len(trees):
        raise StageAssignmentError(
            f"Expected call of {type(model).__name__} to call the same layers in training and otherwise, and for all "
            f"shapes. Received: {len(assigned)} calls of layers where {len(trees)} have been assigned to pipeline "
            "stages. Make its layers, not call, depend on `training`."
        )
    stages = completed(calls, {id(call.node): tree for call, tree in zip(assigned, trees, strict=True)})
    return {id(call.node): _position(call.layer, stages[id(call.node)]) for call in calls}


def _of_layers(model: KerasModel, calls: Sequence[Invocation]) -> list[Invocation]:
    """The calls of a sequential model's own layers; Keras 3 computes masks by operations that are not in its layers."""
    layers = {id(layer) for layer in model.layers}
    return [call for call in calls if id(call.layer) in layers]


def _position(layer: Any, tree: StageTree) -> Where:
    """The `Where` of a layer's call; a model with scopes inside runs its graph, even in one stage, to skip them."""
    if not isinstance(tree, tuple) and has_scopes_inside(layer):
        tree = (tree,) * len(calls_of(layer))
    return (lambda: in_stages(layer, tree)) if isinstance(tree, tuple) else tree


@contextlib.contextmanager
def _calling_graph(model: KerasModel, trees: Sequence[StageTree]) -> Iterator[None]:
    """Runs the graph of the `call` of a subclass of `Model` in place of the `call`, while the context is open."""
    graphs, call = graphs_of(model), model.call

    def call_graph(inputs: Nest, *arguments: Any, training: bool | None = None, mask: Nest = None, **named: Any) -> Any:
        if not tracing():
            given = {name: value for name, value in (("training", training), ("mask", mask)) if value is not None}
            return call(inputs, *arguments, **given, **named)
        training = arguments[0] if arguments else training
        graph = traced_graph(model, inputs, bool(training))
        with graphs.running(graph, lambda graph: _positions(model, graph, trees)):
            return graphs.run(graph, inputs, bool(training), mask)

    with replaced(model, "call", call_graph):
        yield
