"""Programs that enqueue the results of each micro-batch as soon as they are computed, for callbacks.

In a pipeline that is when a micro-batch leaves the last stage, in accumulation after its gradients.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from engine.ir.device_operations import OUTFEED
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.device_calls import ordered_call
from ipu._internal.compiler.pipelining import InferencePipelineProgram, PipelineProgram
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.tokens import own_chain
from ipu._internal.pipelining.micro_batch import in_stage
from ipu._internal.types import Nest

if TYPE_CHECKING:
    from engine.runtime.observer import Observer, RunningCall
    from engine.runtime.rings import OutfeedRing

_numbers = itertools.count()


CHAIN = "callbacks"
"""The chain of the enqueues of training steps, which need not wait for side effects of the update."""


class Streamed:
    """A step to trace that also enqueues its results; in a pipeline, in the last stage.

    After tracing, `enqueues` says whether there are any results.
    """

    enqueues = False

    def __init__(self, step: Callable[..., Any], last_stage: int | None, training: bool) -> None:
        self._training = training
        self.queue = f"ipu_callbacks_{next(_numbers)}"
        self._step, self._last_stage = step, last_stage

    def __call__(self, *arrays: tf.Tensor) -> Any:
        """Traces the step and enqueues its results; returns them."""
        results = self._step(*arrays)
        leaves = [tf.convert_to_tensor(leaf) for leaf in _leaves(results)]
        self.enqueues = bool(leaves)
        if leaves:
            with contextlib.ExitStack() as stack:
                if self._last_stage is not None:
                    stack.enter_context(in_stage(self._last_stage))
                if self._training:
                    stack.enter_context(own_chain(CHAIN))
                ordered_call(OUTFEED, leaves, {"queue": self.queue})
        return results


class Stream(NamedTuple):
    """The queue of a `Streamed` step, the micro-batches of one execution on all replicas, and their number."""

    queue: str
    micro_batches: int
    replicas: int


class StreamingProgram(TracedProgram):
    """A `Streamed` training step with the gradients of several micro-batches accumulated: a step is an update.

    An observer sees each micro-batch, and stops a call at a whole update.
    """

    streams = True

    def __init__(self, *arguments: Any, stream: Stream, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stream = stream

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """The results of the last micro-batches of `steps` executions, [steps, ...] each.

        The ring holds about as many further results as the observer may leave untaken.
        """
        from engine.runtime.rings import OutfeedRing, suggested_slots

        queue = self._stream.queue
        shapes = self._queues[queue].shapes
        ring = OutfeedRing(shapes, observer.held or suggested_slots(shapes))
        order = _leaves(self.pack(range(len(shapes))))
        following = _Following(observer, ring, order, steps, self._stream)

        def run() -> list[np.ndarray]:
            with self._bound_queues(without=queue) as rings:
                return self._run(steps, feeds, "all", following, {**rings, queue: ring})

        return self._execution.alone(run)


class StreamingTrainingPipeline(StreamingProgram, PipelineProgram):
    """The pipeline of a `Streamed` training step."""


class StreamingPipelineProgram(StreamingProgram, InferencePipelineProgram):
    """The pipeline of a `Streamed` step: an observer sees each micro-batch while others are in the pipeline."""

    streams = False

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """The results of `steps` micro-batches, [steps, ...] each.

        A stop takes effect at the end of an execution.
        """
        results = super().run_observed(steps // self._stream.micro_batches, feeds, observer)
        return [result.reshape(-1, *result.shape[2:]) for result in results]


class _Following:
    """An observer of executions that forwards their micro-batches to another one."""

    held = 0

    def __init__(
        self, observer: Observer, ring: OutfeedRing, order: Sequence[int], executions: int, stream: Stream
    ) -> None:
        self._observer, self._ring, self._order = observer, ring, order
        self._steps, self._stream = executions * stream.micro_batches, stream

    def begin(self, call: RunningCall) -> None:
        """Forwards the begin of a call."""
        self._streamed = _StreamedCall(call, self._ring, self._order, self._steps, self._stream.replicas)
        self._observer.begin(self._streamed)  # type: ignore[arg-type]

    def end(self, completed: int) -> None:
        """Forwards the end, after `completed` executions."""
        self._streamed.ended = True
        self._observer.end(completed * self._stream.micro_batches)


class _StreamedCall:
    """A running call, counted in micro-batches, whose results come from a ring, in the order of its leaves."""

    def __init__(self, call: RunningCall, ring: OutfeedRing, order: Sequence[int], steps: int, replicas: int) -> None:
        self._call, self._ring, self._order, self._replicas = call, ring, order, replicas
        self.results: list[np.ndarray] = [np.empty(0)] * len(order)
        for number, shape in zip(order, ring.shapes, strict=True):
            self.results[number] = np.empty((steps, *shape.dimensions), shape.dtype)
        self.ended = False
        self._received = self._taken = 0

    def completed(self) -> int:
        """Number of complete micro-batches."""
        # An observer takes those of all replicas together: until all have come, it cannot have taken any.
        if self.ended or self._received - self._taken < self._replicas:
            self._receive()
        return self._received

    def _receive(self) -> None:
        rows = self._ring.take() or []
        count = len(rows[0]) if rows else 0
        for number, leaf in zip(self._order, rows, strict=False):
            self.results[number][self._received : self._received + count] = leaf
        self._received += count

    def taken(self, steps: int) -> None:
        """Frees the results of the first `steps` micro-batches."""
        self._taken = steps

    def go_on(self) -> None:
        """Lets the engine continue: empties the ring, even if the observer has not taken earlier results."""
        self._receive()

    def stop(self) -> None:
        """Stops the engine after its present execution, and discards further results."""
        self._call.stop()
        self._ring.discard()

    def waits(self) -> int:
        """Number of times that the engine waited until results were taken."""
        return self._call.waits() + self._ring.device_waits


def _leaves(results: Nest) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(results) if leaf is not None]
