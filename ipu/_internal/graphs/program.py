"""The operation in a tf.Graph that executes a program, compiled for the shapes that it is fed with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from ipu._internal.compiler.calling import for_device, run_on_device
from ipu._internal.compiler.processes import transport_of_functions
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.refusals import ShapeFromValues
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.config.system import current_system
from ipu._internal.graphs.host_operations import host_operation
from ipu._internal.graphs.sessions import programs_of, reached, run_of
from ipu._internal.graphs.tracing import GraphFunction
from ipu._internal.graphs.variables import GraphVariable, SessionRun, running
from ipu._internal.recent_programs import RecentPrograms
from ipu._internal.types import Nest, TensorLike

Shapes = tuple[tuple[int, ...], ...]
Key = tuple[Shapes, tuple[bytes, ...]]
MOST_VALUES = 8
"""Elements of an integer array that may be a shape."""
BOUNDARY = "IpuProgram"
"""The type of operation under which the gradient of a program's results is registered."""


class GraphProgram:
    """A function on a device: a program for each list of shapes that its inputs have had.

    Integers on which shapes depend become constants, each value with a program of its own.
    """

    def __init__(self, function: GraphFunction, ordinal: int) -> None:
        self._function, self._ordinal = function, ordinal
        self._transport = transport_of_functions()
        self._programs: RecentPrograms[Key, TracedProgram] = RecentPrograms()
        self._constant: tuple[int, ...] = ()
        """The numbers of the inputs that are constants of the programs."""
        self._latest: TracedProgram | None = None
        self._version = current_system().version
        self._lock = threading.Lock()

    def __call__(self, number: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        """Runs it once, in the run of that number; returns its flat results, and the number."""
        run = run_of(number)
        return run.context.copy().run(self._called, run, number, [np.asarray(array) for array in arrays])

    def _called(self, run: SessionRun, number: np.ndarray, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with running(run):
            program = self._latest = self._program(tuple(array.shape for array in arrays), arrays)
            fed = [array for k, array in enumerate(arrays) if k not in self._constant]
            return [*run_on_device(program, fed, self._ordinal), np.asarray(number)]

    @property
    def variables(self) -> frozenset[GraphVariable]:
        """The variables of the graph that it reads or updates."""
        return frozenset(each for each in self._function.resources if isinstance(each, GraphVariable))

    def latest_program(self) -> TracedProgram | None:
        """The program executed last, or the one for the static shapes of the inputs; None if these are unknown."""
        shapes = [tensor.shape for tensor in self._function.inputs]
        if self._latest is not None and self._version == current_system().version:
            return self._latest
        return (
            self._program(tuple(tuple(s.as_list()) for s in shapes))
            if all(s.is_fully_defined() for s in shapes)
            else None
        )

    def _program(self, shapes: Shapes, arrays: Sequence[np.ndarray] = ()) -> TracedProgram:
        """The program for these shapes, and for the values of `arrays`. Raises ShapeFromValues if it has too few."""
        with self._lock:
            if self._version != current_system().version:
                self._programs.clear()
                self._version = current_system().version
            key = shapes, tuple(arrays[k].tobytes() for k in self._constant if arrays)
            program = self._programs.get(key)
            if program is None:
                step = self._step(shapes, arrays)
                key = shapes, tuple(arrays[k].tobytes() for k in self._constant if arrays)
                program = TracedProgram(for_device(step, self._ordinal, self._transport))
                self._programs.add(key, program)
            return program

    def _step(self, shapes: Shapes, arrays: Sequence[np.ndarray]) -> TracedStep:
        def step(constant: Sequence[int]) -> TracedStep:
            return self._function.step(shapes, {k: arrays[k] for k in constant if arrays})

        try:
            return step(self._constant)
        except ShapeFromValues:
            found = [k for k, a in enumerate(arrays) if a.dtype.kind in "iu" and a.ndim <= 1 and a.size <= MOST_VALUES]
            if self._constant or not found:
                raise
            made = step(found)
            for number in tuple(found):  # those that no shape depends on stay inputs
                with contextlib.suppress(ShapeFromValues):
                    made = step([k for k in found if k != number])
                    found.remove(number)
            self._constant = tuple(found)
            return made

    def operation(self) -> tuple[tf.Operation, list[tf.Tensor]]:
        """The operation that executes it, in the default graph, and its flat results."""
        graph, function = tf.compat.v1.get_default_graph(), self._function
        programs = programs_of(graph)
        specs = [*function.outputs, tf.TensorSpec([], tf.int64)]
        *results, executed = host_operation(self, [programs.run_number, *function.inputs], specs)
        programs.operations.add(executed.op)
        programs.made[executed.op] = self
        if not results:
            return executed.op, []
        handles = [v.handle for v in function.resources if isinstance(v, GraphVariable) and v.dtype.is_floating]
        # The only purpose of the handles: gradients with respect to the variables find this operation, and raise.
        with tf.device(None), tf.device("/device:CPU:0"), graph.gradient_override_map({"IdentityN": BOUNDARY}):
            bounded = tf.raw_ops.IdentityN(input=[*results, *handles])
        programs.operations.add(bounded[0].op)
        return executed.op, list(bounded[: len(results)])


def program_of_results(results: Nest) -> TracedProgram | None:
    """The latest program of a result of `ipu_compiler.compile` in a tf.Graph; None for other values."""
    roots = [getattr(each, "op", each) for each in tf.nest.flatten(results)]
    for operation in reached(each for each in roots if isinstance(each, tf.Operation)):
        made = programs_of(operation.graph).made.get(operation)
        if made is not None:
            return made.latest_program()
    return None


@ops.RegisterGradient(BOUNDARY)
def _gradient(operation: tf.Operation, *gradients: TensorLike) -> None:
    raise LookupError(
        f"Expected gradients to be computed inside the function given to ipu_compiler.compile. Received: gradients of "
        f"{operation.outputs[0].name!r}, a result of a program. Call the optimizer's minimize, or tf.gradients, in the "
        f"function."
    )
