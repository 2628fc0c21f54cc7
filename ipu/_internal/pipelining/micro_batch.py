"""One micro-batch of a pipeline as it is traced: an element of the infeed through all stages, the loss, the outfeed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from engine.errors import ConfigurationError
from engine.ir.op_names import STAGE, STAGE_SCOPE
from ipu._internal.compiler.loop_context import loop_body
from ipu._internal.compiler.tokens import own_chain
from ipu._internal.conversion import converted
from ipu._internal.graphs.variables import zeros_variable
from ipu._internal.pipelining.arguments import PipelineArguments
from ipu._internal.pipelining.errors import PipelineTypeError
from ipu._internal.queues.elements import arguments_of
from ipu._internal.types import Nest


@contextlib.contextmanager
def in_stage(number: int) -> Iterator[None]:
    """Creates operations in a stage, while the context is open; their side effects are ordered with the stage's
    others.
    """
    with tf.name_scope(f"{STAGE}{number}"), own_chain(stage_chain(number)):
        yield


def stage_chain(number: int) -> str:
    """The name of the token of a stage."""
    return f"stage_{number}"


class TracedMicroBatch:
    """A micro-batch being traced: results of its stages, the optimizer's output, tensors for the outfeed."""

    def __init__(self, arguments: PipelineArguments, output_type: type) -> None:
        self._arguments, self._output_type = arguments, output_type
        self._scope = tf.get_current_name_scope()
        self._names: dict[str, int] = {}
        self.number: tf.Tensor | None = None
        """Number of the micro-batch in its update, int32[], where a loop counts them; None where stages do."""

    @property
    def last_stage(self) -> int:
        """The number of the last stage."""
        return len(self._arguments.stages) - 1

    def stages(self, inputs: Sequence[Any]) -> Any:
        """The last stage's outputs for the next element of the infeed."""
        element: tuple[Any, ...] = ()
        named: dict[str, Any] = {}
        if self._arguments.infeed_queue is not None:
            with in_stage(0):
                element, named = arguments_of(self._arguments.infeed_queue._dequeue())
        positional, outputs = (*inputs, *element), None
        for number, functions in enumerate(self._arguments.stages):
            with in_stage(number), self._distinct_names(), self._naming(), loop_body(self._counter):
                results = [converted(function)(*positional, **named) for function in functions]
            outputs = results[0] if len(results) == 1 else [each for result in results for each in _spread(result)]
            positional, named = tuple(_spread(outputs)), {}
        return outputs

    def optimizer_output(self, outputs: Nest) -> Any:
        """Result of `optimizer_function`; raises PipelineTypeError if it is no OptimizerFunctionOutput."""
        function = self._arguments.optimizer_function
        assert function is not None
        with in_stage(self.last_stage), self._distinct_names(), self._naming():
            output = converted(function)(*_spread(outputs))
        if not isinstance(output, self._output_type):
            raise PipelineTypeError(
                f"Expected optimizer_function to return an OptimizerFunctionOutput. Received: {output!r}."
            )
        return output

    def _counter(self) -> tf.Tensor:
        """The number of the micro-batch in its update, int32[], counted on the device by the stage that asks."""
        if self.number is not None:
            return self.number
        count = self._arguments.count * self._arguments.batch_serialization_iterations
        number = zeros_variable([], tf.int32, "ipu_micro_batch")
        current = number.read_value()
        number.assign(tf.math.floormod(current + 1, count), read_value=False)
        return current

    @contextlib.contextmanager
    def _distinct_names(self) -> Iterator[None]:
        """Makes name scopes distinct from those of the stages before, as without stages, while the context is open."""
        graph = ops.get_default_graph()
        scope, used = f"{graph.get_name_scope()}/".lower(), graph._names_in_use
        for name, count in self._names.items():
            used[scope + name] = max(used.get(scope + name, 0), count)
        yield
        self._names |= {name.removeprefix(scope): n for name, n in used.items() if name.startswith(scope)}

    def _naming(self) -> contextlib.AbstractContextManager[Any]:
        """Names variables as without stages, by the pipeline's scope and the user's, while the context is open."""

        def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
            inner = tf.get_current_name_scope()
            stage = next(iter(STAGE_SCOPE.finditer(inner)), None)
            if stage is None:  # tf.compat.v1.get_variable leaves name scopes
                return next_creator(**arguments)
            scope = f"{self._scope}/{inner[stage.end() :].strip('/')}".strip("/")
            with ops.init_scope(), tf.name_scope(f"{scope}/" if scope else ""):
                return next_creator(**arguments)

        return tf.variable_creator_scope(create)

    def enqueued(self, outputs: Nest, output: Nest) -> Any:
        """The tensors for the outfeed, or None; raises ConfigurationError for a wrong mask or a missing queue."""
        arguments = self._arguments
        if output is not None:
            if arguments.outfeed_loss:
                return output.loss
            outputs = list(_spread(outputs))
            if arguments.outfeed_mask is not None:
                if len(arguments.outfeed_mask) != len(outputs):
                    raise ConfigurationError(
                        f"Expected outfeed_mask to have an element for each of {len(outputs)} outputs of the last "
                        f"stage. Received: {len(arguments.outfeed_mask)}."
                    )
                outputs = [each for each, left_out in zip(outputs, arguments.outfeed_mask, strict=True) if not left_out]
                if not outputs:
                    return None
        elif not isinstance(outputs, Mapping):
            outputs = list(_spread(outputs))
        if not tf.nest.flatten(outputs):
            return None
        if arguments.outfeed_queue is None:
            raise ConfigurationError(
                "The last computational stage has tensor outputs. Expected an outfeed_queue for them. Received: none. "
                "Pass one, or let the last stage return nothing."
            )
        return outputs

    def refuse_captures(self) -> None:
        """Raises ConfigurationError if the stages use a tensor of the calling function."""
        graph = ops.get_default_graph()
        for outer, _ in getattr(graph, "captures", ()):
            if outer.dtype != tf.resource and not hasattr(outer, "numpy"):
                raise ConfigurationError(
                    f"Trying to capture the tensor {outer.name}. Expected stages to use their arguments and variables. "
                    f"Received: a tensor from outside of the pipeline. Pass it in `inputs`, through all stages before."
                )


def _spread(outputs: Nest) -> Sequence[Any]:
    """A stage's outputs as the arguments of the next."""
    if outputs is None:
        return ()
    return outputs if isinstance(outputs, list | tuple) else (outputs,)
