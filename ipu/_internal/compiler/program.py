"""A compiled step: the engine's executable together with the variables it reads and updates."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from engine.compile_progress import compile_progress
from engine.errors import ConfigurationError, InvalidValue
from engine.host_functions import host_function
from engine.ir import Module
from engine.ir.device_operations import calls_of_host_functions, config_of, queue_signatures
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.execution_locks import Execution
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.device_variables import device_buffers, written_meanwhile
from ipu._internal.compiler.executable_files import store_executable
from ipu._internal.compiler.executing import check_assignable, check_owner, executing, lost_assignment
from ipu._internal.compiler.fit import certainly_fits, check_program, with_storage
from ipu._internal.compiler.sources import source_of
from ipu._internal.compiler.tokens import CheckToken, is_token
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.compiler.trace_events import events_of
from ipu._internal.compiler.value_checks import InvalidArgumentError
from ipu._internal.compiler.variable_labels import labels_of
from ipu._internal.config.enumerations import DeviceConnectionType
from ipu._internal.config.system import current_system
from ipu._internal.queues.registry import bound

if TYPE_CHECKING:
    from engine.compile import Inspect
    from engine.partition.pipeline import Pipelined
    from engine.profile.options import Assumptions
    from engine.program.program import Label
    from engine.program.program import Program as EngineProgram
    from engine.runtime.observer import Observer
    from engine.runtime.rings import AnyRing


class AnyExecutable(Protocol):
    """The engine's executable of a module."""

    def run(
        self,
        steps: int,
        feeds: list[RowFeed],
        variables: list[DeviceBuffer],
        outputs: Literal["last", "all"] = "last",
        observer: Observer | None = None,
        queues: Mapping[str, AnyRing] | None = None,
    ) -> list[np.ndarray]:
        """Runs `steps` steps; returns the results that are not variable updates."""


logger = logging.getLogger("ipu")
CHIP_LACKS = {"f64": "float32"}  # int64 streams are narrowed to int32 on the way to a chip
_definitions_alone = False


@contextlib.contextmanager
def use_definitions(enabled: bool = True) -> Iterator[None]:
    """Runs programs that are built while the context is open on the NumPy definitions, slowly: for debugging."""
    global _definitions_alone
    before, _definitions_alone = _definitions_alone, enabled
    try:
        yield
    finally:
        _definitions_alone = before


def build_executable(
    module: Module, roles: list[str], constants: dict[int, np.ndarray], inspect: Inspect = check_program
) -> AnyExecutable:
    """Compiles a module; all executables are built here. Raises UnsupportedOperation, OutOfTileMemory.

    `inspect` sees the engine's program first, and raises OutOfTileMemory for one that is too large.
    Raises as `store_executable` where executables are stored.
    """
    if _definitions_alone:
        from engine.evaluated_executable import EvaluatedExecutable

        return EvaluatedExecutable(module, roles, constants, current_system().floating_point)
    # Numba and LLVM take long to load: imported only for a compilation.
    from engine.compile import compile_module

    folder = store_executable(module, roles, constants)
    with compile_progress() as progress:
        executable = compile_module(
            *(module, roles, constants),
            progress=progress.generated,
            folder=folder,
            floating_point=current_system().floating_point,
            options=current_system().compiler_options,
            inspect=inspect,
        )
    connection = current_system().config.device_connection.type
    if connection in (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER):
        from ipu._internal.compiler.connection import DetachedExecutable

        return DetachedExecutable(executable, connection is DeviceConnectionType.PRE_COMPILE)
    return executable


def build_program(
    module: Module, roles: list[str], constants: Mapping[int, np.ndarray], *, recomputing: bool = False
) -> EngineProgram:
    """The compute sets of one step as a chip has them, with the compiler options of the present configuration.

    With `recomputing` activations are recomputed whatever the configuration says.
    """
    from engine.compile import build_program

    options = current_system().compiler_options
    options = replace(options, recompute=options.recompute or recomputing)
    return build_program(module, roles, dict(constants), options=options)


def _labelled(traced: TracedStep, *, recomputing: bool = False) -> EngineProgram:
    program = build_program(traced.module, traced.roles, traced.constants, recomputing=recomputing)
    _label_variables(program, traced)
    return program


def _label_variables(program: EngineProgram, traced: TracedStep) -> None:
    for number, label in labels_by_number(traced).items():
        if number in program.variables:
            buffer = program.variables[number]
            buffer.name, buffer.label = str(label), label


def labels_by_number(traced: TracedStep) -> dict[int, Label]:
    """Labels that reports give to the variables of a step, by the numbers of its parameters."""
    numbers = (number for number, role in enumerate(traced.roles) if role == "variable")
    labels = zip(numbers, labels_of(traced.variables, traced.state), strict=True)
    return {number: label for number, label in labels if label is not None}


_noticed_types: set[str] = set()


def _notice_wide_types(traced: TracedStep) -> None:
    """Warns once for each fed dtype that the configured chip lacks; the engine computes with it unchanged."""
    if not current_system().configured:
        return
    for role, parameter in zip(traced.roles, traced.module.entry.parameters, strict=True):
        element_type = parameter.array_shape.element_type
        if role == "feed" and element_type in CHIP_LACKS and element_type not in _noticed_types:
            _noticed_types.add(element_type)
            dtype = parameter.array_shape.dtype
            logger.warning(
                "The program is fed with %s, which an IPU does not have: it is computed as written here, but a chip "
                "would need %s. Cast the data to run on hardware.",
                dtype,
                CHIP_LACKS[element_type],
            )


class TracedProgram:
    """An executable bound to variables, which stay on the device from one call to the next."""

    streams = False
    """Whether `run_observed` reports each micro-batch of an update."""

    def __init__(self, traced: TracedStep) -> None:
        self._traced = traced
        _notice_wide_types(traced)
        self._queues = queue_signatures(traced.module)
        calls = list(calls_of_host_functions(traced.module))
        self._seen_by_calls = [v for v in traced.variables if not is_token(v)] if calls else []
        self._floating_point = current_system().floating_point
        self.latest_run: object = None
        """Token of the latest run, which the variables written by it keep; None before it and for several replicas."""
        self._execution = Execution([each for each in traced.variables if not isinstance(each, CheckToken)])
        self._updated = [each for each in traced.updated if not isinstance(each, CheckToken)]
        for call in calls:
            function = host_function(config_of(call)["function"])
            function.replicas = traced.replicas * traced.sequential
            check_owner(function, self._seen_by_calls)
        self._events = events_of(self)
        with contextlib.nullcontext() if self._events is None else self._events.compilation():
            self._executable = build_executable(traced.module, traced.roles, traced.constants, self._check_fit)

    @property
    def module(self) -> Module:
        """The module before all passes."""
        return self._traced.module

    @property
    def graph_key(self) -> Hashable:
        """The key of the trace's graph; None for a program that was made of several traced steps."""
        return self._traced.graph_key

    @property
    def is_current(self) -> bool:
        """Whether the variables whose values are parts of the program still have them."""
        return all(np.array_equal(variable.numpy(), value) for variable, value in self._traced.fixed)

    @property
    def constants(self) -> Mapping[int, np.ndarray]:
        """The values of the parameters that are constants, by their numbers."""
        return self._traced.constants

    @property
    def traced_pipelines(self) -> tuple[Pipelined, ...]:
        """The pipelines of a function, in the order in which it calls them."""
        return self._traced.pipelines

    @property
    def traced_replicas(self) -> int:
        """Number of replicas of a function."""
        return self._traced.replicas

    @property
    def traced_ipus(self) -> int:
        """Number of IPUs of a replica of a function."""
        return self._traced.ipus

    def source(self, op_name: str) -> str:
        """The line of the user's program that made an operation, empty if it is unknown."""
        return source_of(op_name, self._traced.source_lines)

    @property
    def engine_program(self) -> EngineProgram:
        """The compute sets of one step, as a chip has them: its arithmetic units round themselves.

        Raises ConfigurationError for a program that runs on the definitions.
        """
        from engine.runtime.executable import Executable as CompiledExecutable

        executable = getattr(self._executable, "executable", self._executable)
        if isinstance(executable, CompiledExecutable):
            return executable.program if self._floating_point.rounds_to_nearest else self._plain_program
        raise ConfigurationError("Expected a program on tiles. Received: one that runs on the definitions alone.")

    def _check_fit(self, program: EngineProgram) -> None:
        """Raises OutOfTileMemory for a program that the configured chip cannot hold.

        A chip, or the chips of all shards, hold one of the replicas. Pipelines in a function are not checked.
        """
        traced = self._traced
        _label_variables(program, traced)
        if traced.pipelines or certainly_fits(program):
            return
        plain = program if self._floating_point.rounds_to_nearest else self._plain_program
        check_program(
            self._of_one_replica(plain), self.with_storage, traced.ipus, self.source, self.recomputing_program
        )

    def chip_program(self) -> EngineProgram:
        """The engine's program on one chip: that of one replica."""
        return self._of_one_replica(self.engine_program)

    def with_storage(self, assumptions: Assumptions) -> Assumptions:
        """The assumptions, with the data that the model keeps in streaming memory."""
        traced = self._traced
        interval = 1 if traced.state is None else traced.state.interval
        return with_storage(assumptions, traced.storage, traced.state_shards, interval)

    def recomputing_program(self) -> EngineProgram:
        """The engine's program on one chip if IPUConfig.allow_recompute were set."""
        return _labelled(self._single or self._traced, recomputing=True)

    @property
    def _single(self) -> TracedStep | None:
        """The step of one replica, if this one was traced for several."""
        from ipu._internal.compiler.replication import replicated

        alone = self._traced.alone
        several = self._traced.replicas > 1 or self._traced.sequential > 1
        return replicated(alone, 1) if several and alone is not None else None

    def _of_one_replica(self, program: EngineProgram) -> EngineProgram:
        single = self._single
        return program if single is None else _labelled(single)

    @cached_property
    def _plain_program(self) -> EngineProgram:
        """The program without the host code for rounding."""
        return _labelled(self._traced)

    def run(self, steps: int, feeds: list[RowFeed], outputs: Literal["last", "all"] = "last") -> list[np.ndarray]:
        """Runs `steps` steps; returns the flat results of the last one, or of all with an axis [steps].

        Executions that share variables are serialized; another thread that reads one of them waits for the end.
        Raises the errors of a data set that feeds the program, tf.errors.OutOfRangeError at its end, and leaves
        the variables unchanged then; FailedPreconditionError for a queue that is not initialized;
        InvalidArgumentError for a value that fails a check, with variables as before its step.
        """
        if not self._queues:
            return self._execution.alone(lambda: self._run(steps, feeds, outputs, None))
        return self._execution.alone(lambda: self._run_bound(steps, feeds, outputs, None))

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """Runs up to `steps` steps with an observer; returns the flat results of all executed steps.

        Other threads that read a variable of the program wait for the end.
        """
        return self._execution.alone(lambda: self._run_bound(steps, feeds, "all", observer))

    def _run_bound(
        self, steps: int, feeds: list[RowFeed], outputs: Literal["last", "all"], observer: Observer | None
    ) -> list[np.ndarray]:
        with self._bound_queues() as rings:
            return self._run(steps, feeds, outputs, observer, rings)

    def _bound_queues(self, without: str = "") -> contextlib.AbstractContextManager[dict[str, AnyRing]]:
        """The rings of the program's queues, except queue `without`, which the host does not bind."""
        queues = {name: signature for name, signature in self._queues.items() if name != without}
        return bound(queues, self._traced.replicas, self._traced.sequential)

    def _run(
        self,
        steps: int,
        feeds: list[RowFeed],
        outputs: Literal["last", "all"],
        observer: Observer | None,
        rings: Mapping[str, AnyRing] | None = None,
    ) -> list[np.ndarray]:
        for variable in self._updated:
            check_assignable(variable)
        buffers = device_buffers(self._traced.variables)
        call = self._executable.run if self._events is None else self._events.recorded(self._executable.run)
        try:
            with executing(self._seen_by_calls) if self._seen_by_calls else contextlib.nullcontext():
                results = call(steps, feeds, buffers, outputs, observer, rings)
        except InvalidValue as error:
            raise InvalidArgumentError(error) from None
        finally:
            lost = written_meanwhile(self._updated) if self._seen_by_calls else None
            # An interrupted call has completed whole steps, so the device still holds the newest values.
            self.latest_run = run = object() if self._traced.replicas == 1 else None
            for variable in self._updated:
                variable.device_written(run)
        if lost:
            raise lost_assignment(lost[0])
        return results

    def pack(self, results: Sequence[Any]) -> Any:
        """`results` in the structure that the traced function returned."""
        return self._traced.pack(results)
