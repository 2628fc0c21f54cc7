"""The result of `engine.load`: a compiled program from a file, ready to run, without TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import OF_THE_ENVIRONMENT, ConfigurationError, InvalidFile, IPUError
from engine.files.signature import Signature, TensorInfo
from engine.ir.shape import shape_of
from engine.machine_code.given_objects import has_compiler
from engine.private_files import read_regular
from engine.resource_limits import current_limits, within_seconds
from engine.runtime import encoded_file
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.encoded_file import EncodedFile
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from engine.runtime.time_limit import TimeLimit, time_limit
from engine.values import as_array

if TYPE_CHECKING:
    from engine.files.executable_file import ExecutableFile

Inputs = Mapping[str, Any] | Sequence[Any]
Outputs = dict[str, np.ndarray] | list[np.ndarray]


class LoadedExecutable:
    """A program with its variables, which many threads may run; their calls are serialised.

    `name` is the module's, `metadata` the exporter's notes. `inputs` and `outputs` have the names, whole shapes and
    dtypes of arrays; `signature` has both.
    """

    def __init__(
        self, file: ExecutableFile | EncodedFile, weights: Mapping[str, Any] | None = None, origin: str = "a file"
    ) -> None:
        self.name: str = file.name
        self.signature: Signature = file.signature
        self.inputs, self.outputs = file.signature.inputs, file.signature.outputs
        self.metadata: dict[str, str] = dict(file.metadata)
        if not isinstance(file, EncodedFile):
            _check_no_queues(file, origin)
        self._variables = device_buffers(file, weights or {})
        self._executable = Executable(file.program) if isinstance(file, EncodedFile) else compile_file(file, origin)
        self._lock = threading.Lock()

    @property
    def batch_size(self) -> int | None:
        """The first dimension of all inputs and outputs; None if they differ in it."""
        sizes = {info.shape[:1] for info in (*self.inputs, *self.outputs)}
        return sizes.pop()[0] if len(sizes) == 1 and () not in sizes else None

    @property
    def is_brief(self) -> bool:
        """Whether a run has so little work that the calling thread does it alone."""
        return self._executable.is_brief

    def run(self, inputs: Inputs, timeout: float | None = None) -> Outputs:
        """Runs the program once, on inputs of exactly the shapes of `inputs`.

        Inputs by name give outputs by name; a list of inputs, in order, gives a list. `timeout` is the time limit of
        the call in seconds, including other threads' calls before it; None is no limit. Raises ValueError for missing
        or unknown inputs, other shapes and a timeout that is not above 0, TypeError for values that the input's dtype
        cannot hold, CallTimeout, a TimeoutError, when the time is up: variables are as before the call then.
        """
        limit = time_limit(timeout)
        arrays = [fitting_array(value, info) for info, value in zip(self.inputs, self._ordered(inputs), strict=True)]
        if limit is None:
            with self._lock:
                results = self._results(arrays, None)
        else:
            with self._alone(limit):
                results = self._results(arrays, limit)
        return self._named(inputs, results)

    def _results(self, arrays: list[np.ndarray], limit: TimeLimit | None) -> list[np.ndarray]:
        brief = self._executable.brief_call(self._variables)
        if brief is not None:
            return brief.run(arrays)
        feeds = [RowFeed(array if array.ndim else array[None]) for array in arrays]
        return self._executable.run(1, feeds, self._variables, limit=limit)

    def run_rows(self, inputs: Inputs, timeout: float | None = None) -> Outputs:
        """Runs any number of rows, the same for all inputs, in batches; the last is padded with zeros.

        Inputs and outputs are as for `run`, except for the number of rows. Raises ValueError also for a program without
        a batch size, TypeError as `run` does, and CallTimeout, with variables as after the last complete batch.
        """
        limit = time_limit(timeout)
        batch = self.batch_size
        if not batch:
            raise ConfigurationError("Expected inputs and outputs with one batch size. Received: a program without it.")
        arrays: list[np.ndarray] = []
        for info, value in zip(self.inputs, self._ordered(inputs), strict=True):
            array = as_array(value, info.name, info.dtype)
            if array.shape[1:] != info.shape[1:] or not array.ndim or len(array) != len((arrays or [array])[0]):
                rows = len(arrays[0]) if arrays else "any number of"
                raise _wrong_shape(info, [rows, *info.shape[1:]], array)
            arrays.append(array)
        rows = len(arrays[0]) if arrays else batch
        if not rows:
            return self._named(inputs, [np.zeros((0, *info.shape[1:]), info.dtype) for info in self.outputs])
        steps = -(-rows // batch)
        feeds = [RowFeed(_filled_up(array, steps * batch)) for array in arrays]
        with self._alone(limit):
            results = self._executable.run(steps, feeds, self._variables, "all", limit=limit)
        return self._named(inputs, [result.reshape(-1, *result.shape[2:])[:rows] for result in results])

    @contextmanager
    def _alone(self, limit: TimeLimit | None) -> Iterator[None]:
        """Holds the lock: no other thread runs the program within."""
        if not self._lock.acquire(timeout=-1 if limit is None else min(limit.left(), threading.TIMEOUT_MAX)):
            assert limit is not None
            raise limit.error("one that waited for another thread's call of the program")
        try:
            yield
        finally:
            self._lock.release()

    def _ordered(self, inputs: Inputs) -> list[Any]:
        names = [info.name for info in self.inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise ConfigurationError(f"Expected inputs {names}. Received: {list(inputs)!r:.200}.")
            return [inputs[name] for name in names]
        if not isinstance(inputs, list | tuple):
            raise TypeError(f"Expected a dict, a list or a tuple of inputs. Received: {type(inputs).__name__}.")
        if len(inputs) != len(names):
            raise ConfigurationError(f"Expected {len(names)} inputs, {names}. Received: {len(inputs)}.")
        return list(inputs)

    def _named(self, inputs: Inputs, results: list[np.ndarray]) -> Outputs:
        if not isinstance(inputs, Mapping):
            return results
        return {info.name: result for info, result in zip(self.outputs, results, strict=True)}


def read_file(path: str | Path) -> ExecutableFile | EncodedFile:
    """Reads the program of a file: encoded, if it was given with object code. Raises the errors of
    `read_executable`.
    """
    if not has_compiler():
        found = encoded_file.find(read_regular(path, current_limits().most_file_bytes), str(path))
        if found is not None:
            return found
    from engine.files.executable_file import read_executable  # with all checks, takes as long to import as the rest

    return read_executable(path)


def _check_no_queues(file: ExecutableFile, origin: str) -> None:
    from engine.ir.device_operations import queue_signatures

    queues = sorted(queue_signatures(file.module))
    if queues:
        raise ConfigurationError(
            f"Expected a program that takes inputs and gives outputs in {origin}. Received: one with the queues "
            f"{', '.join(queues)}. Run it with ipu.embedded_runtime."
        )


def compile_file(file: ExecutableFile, origin: str) -> Executable:
    """The executable of a file's module; raises InvalidFile for one that no compiler of this project has written."""
    from engine.compile import compile_module

    with compiling(origin):
        return compile_module(file.module, file.roles, file.constants)


@contextmanager
def compiling(origin: str) -> Iterator[None]:
    """Turns errors that no program of a compiler of this project leads to into InvalidFile, while the context is open.

    Errors of the machine stay as they are. Raises ResourceLimit if the program takes more bytes or seconds to compile
    than the limits.
    """
    try:
        with within_seconds(origin):
            yield
    except (IPUError, *OF_THE_ENVIRONMENT):
        raise
    except Exception as error:
        raise InvalidFile(
            f"Expected a program that can be compiled in {origin}. Received: one that leads to {error!r:.200}."
        ) from error


def device_buffers(file: ExecutableFile | EncodedFile, weights: Mapping[str, Any]) -> list[DeviceBuffer]:
    """A buffer for each variable, with its value. Raises ConfigurationError for weights of other names or shapes."""
    missing = file.missing()
    if set(weights) != set(missing):
        raise ConfigurationError(f"Expected weights {list(missing)}. Received: {list(weights)!r:.200}.")
    given = iter(missing.items())
    buffers = []
    for number, role in enumerate(file.roles):
        if role != "variable":
            continue
        value = file.variables.get(number)
        if value is None:
            name, info = next(given)
            value = fitting_array(weights[name], info)
        buffers.append(DeviceBuffer(shape_of(value)))
        buffers[-1].write(value)
    return buffers


def fitting_array(value: Any, info: TensorInfo) -> np.ndarray:
    """The value as an array of that dtype. Raises ConfigurationError for another shape, and as `as_array` does."""
    array = as_array(value, info.name, info.dtype)
    if array.shape != info.shape:
        raise _wrong_shape(info, list(info.shape), array)
    return array


def _filled_up(array: np.ndarray, rows: int) -> np.ndarray:
    if len(array) == rows:
        return array
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def _wrong_shape(info: TensorInfo, expected: list[Any], array: np.ndarray) -> ConfigurationError:
    return ConfigurationError(f"Expected {info.name!r} to be {info.dtype}{expected}. Received: {list(array.shape)}.")
