"""Programs that enqueue the results of each micro-batch as soon as they are there, for callbacks.

Of a pipeline they are there when a micro-batch leaves the last stage, of accumulation after its gradients.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from engine.ir.device_operations import OUTFEED
from engine.partition.pipeline import Pipelining
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.device_calls import ordered_call
from ipu._internal.compiler.pipelining import InferencePipelineProgram, PipelineProgram
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.tokens import own_chain
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.pipelining.micro_batch import in_stage
from ipu._internal.types import Nest

if TYPE_CHECKING:
    from engine.runtime.observer import Observer, RunningCall
    from engine.runtime.rings import OutfeedRing

_numbers = itertools.count()


CHAIN = "callbacks"
"""The chain of what training steps enqueue: side effects of the update need not come first."""


class Streamed:
    """A step to trace that also enqueues its results, in the last stage of a pipeline if it is one.

    `enqueues` says, once it has been traced, whether there are any.
    """

    enqueues = False

    def __init__(self, step: Callable[..., Any], last_stage: int | None, training: bool) -> None:
        self._training = training
        self.queue = f"ipu_callbacks_{next(_numbers)}"
        self._step, self._last_stage = step, last_stage

    def __call__(self, *arrays: tf.Tensor) -> Any:
        """What the step returns."""
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


class StreamingAccumulation(TracedProgram):
    """A `Streamed` training step with the gradients of `micro_batches` accumulated: a step is an update.

    An observer is told of each micro-batch, and ends a call with a whole update.
    """

    streams = True

    def __init__(self, accumulated: TracedStep, micro_batches: int, replicas: int, queue: str) -> None:
        super().__init__(accumulated)
        self._micro_batches, self._replicas, self._queue = micro_batches, replicas, queue

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """The results of `steps` updates, those of their last micro-batches."""
        return _run_streaming(
            self, steps, feeds, observer, queue=self._queue, micro_batches=self._micro_batches, replicas=self._replicas
        )


class StreamingTrainingPipeline(PipelineProgram):
    """The pipeline of a `Streamed` training step, in the same way."""

    streams = True

    def __init__(
        self,
        traced: TracedStep,
        pipelining: Pipelining,
        queue: str,
        *,
        once: Iterable[Any] = (),
        metrics: Iterable[Any] = (),
    ) -> None:
        super().__init__(traced, pipelining, once=once, metrics=metrics)
        self._micro_batches, self._queue = pipelining.steps * pipelining.replicas, queue

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """The results of `steps` updates, those of their last micro-batches."""
        return _run_streaming(
            self, steps, feeds, observer, queue=self._queue, micro_batches=self._micro_batches, replicas=self.replicas
        )


class StreamingPipelineProgram(InferencePipelineProgram):
    """The pipeline of a `Streamed` step: an observer is told of each micro-batch while others are on their way."""

    def __init__(self, traced: TracedStep, pipelining: Pipelining, queue: str, *, metrics: Iterable[Any] = ()) -> None:
        super().__init__(traced, pipelining, metrics=metrics)
        self._queue = queue

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """The results of `steps` micro-batches.

        Told to stop, the pipeline still comes to the end of an execution.
        """
        executions = steps // self._micro_batches
        results = _run_streaming(
            self,
            executions,
            feeds,
            observer,
            queue=self._queue,
            micro_batches=self._micro_batches,
            replicas=self.replicas,
        )
        return [result.reshape(-1, *result.shape[2:]) for result in results]


def _run_streaming(
    program: TracedProgram,
    executions: int,
    feeds: list[RowFeed],
    observer: Observer,
    *,
    queue: str,
    micro_batches: int,
    replicas: int,
) -> list[np.ndarray]:
    """The results of executions, of `micro_batches` each, while `observer` is told of these.

    About as many results as the observer may have untaken wait for it in the ring besides.
    """
    from engine.runtime.rings import OutfeedRing, suggested_slots

    shapes = program._queues[queue].shapes
    ring = OutfeedRing(shapes, observer.held or suggested_slots(shapes))
    order = _leaves(program.pack(range(len(shapes))))
    following = _Following(observer, ring, order, executions * micro_batches, micro_batches, replicas)

    def run() -> list[np.ndarray]:
        with program._bound_queues(without=queue) as rings:
            return program._run(executions, feeds, "all", following, {**rings, queue: ring})

    return program._execution.alone(run)


class _Following:
    """The observer of executions who shows another one their micro-batches."""

    held = 0

    def __init__(
        self,
        observer: Observer,
        ring: OutfeedRing,
        order: Sequence[int],
        steps: int,
        micro_batches: int,
        replicas: int,
    ) -> None:
        self._observer, self._ring, self._order = observer, ring, order
        self._steps, self._micro_batches, self._replicas = steps, micro_batches, replicas

    def begin(self, call: RunningCall) -> None:
        """The engine is about to begin."""
        self._streamed = _StreamedCall(call, self._ring, self._order, self._steps, self._replicas)
        self._observer.begin(self._streamed)  # type: ignore[arg-type]

    def end(self, completed: int) -> None:
        """The engine has ended after so many executions."""
        self._streamed.ended = True
        self._observer.end(completed * self._micro_batches)


class _StreamedCall:
    """A call under way, counted in micro-batches: their results come through a ring, in the order of its leaves."""

    def __init__(self, call: RunningCall, ring: OutfeedRing, order: Sequence[int], steps: int, replicas: int) -> None:
        self._call, self._ring, self._order, self._replicas = call, ring, order, replicas
        self.results: list[np.ndarray] = [np.empty(0)] * len(order)
        for number, shape in zip(order, ring.shapes, strict=True):
            self.results[number] = np.empty((steps, *shape.dimensions), shape.dtype)
        self.ended = False
        self._received = self._taken = 0

    def completed(self) -> int:
        """How many micro-batches are complete."""
        # An observer takes those of all replicas together: until they are there, it cannot have taken what came.
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
        """Says how many micro-batches' results nobody needs any longer."""
        self._taken = steps

    def go_on(self) -> None:
        """Lets the engine go on: takes what is in the ring, whether or not the observer has had what came before."""
        self._receive()

    def stop(self) -> None:
        """Asks the engine to end with its execution, of which nobody will look at what comes yet."""
        self._call.stop()
        self._ring.discard()

    def waits(self) -> int:
        """How often the engine waited until results were taken."""
        return self._call.waits() + self._ring.device_waits


def _leaves(results: Nest) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(results) if leaf is not None]
