"""Runtimes of programs from files, called from many threads: without queues, or with one infeed and one outfeed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.errors import ConfigurationError
from engine.files.executable_file import ExecutableFile, read_executable
from engine.files.signature import TensorInfo, tensor_info
from engine.ir.device_operations import QueueSignature, queue_signatures
from engine.loaded import LoadedExecutable, compile_file, device_buffers, fitting_array
from engine.runtime.feeds import RowFeed
from engine.runtime.request_stream import RequestStream
from engine.runtime.rings import AnyRing, InfeedRing, OutfeedRing

SLOTS = 64
"""Requests, or results, that a ring can hold."""
DIRECTIONS = ("infeed", "outfeed")
Values = Sequence[Any] | Mapping[str, Any]


class QueueRuntime:
    """A program that dequeues requests from an infeed and enqueues results to an outfeed, run repeatedly.

    A program that needs more requests than are waiting, such as a pipeline, gets zeros after `timeout` seconds.
    """

    def __init__(
        self,
        file: ExecutableFile,
        queues: Mapping[str, QueueSignature],
        values: Values,
        timeout: float,
        origin: str,
    ) -> None:
        names = {direction: [n for n, q in queues.items() if q.direction == direction] for direction in DIRECTIONS}
        if any(len(each) != 1 for each in names.values()):
            raise ConfigurationError(f"Expected a program with one infeed and one outfeed. Received: {names}.")
        (infeed,), (outfeed,) = names["infeed"], names["outfeed"]
        self.inputs = _leaves("input", queues[infeed])
        self.outputs = _leaves("output", queues[outfeed])
        into, out_of = InfeedRing(queues[infeed].shapes, SLOTS), OutfeedRing(queues[outfeed].shapes, SLOTS)
        rings: dict[str, AnyRing] = {infeed: into, outfeed: out_of}
        feeds, variables = _start_values(file, values)
        executable = compile_file(file, origin)
        self._stream = RequestStream(into, out_of, timeout)
        run = partial(executable.run, 1, feeds, variables, queues=rings)
        # The threads refer to the stream, not to this object: they end when it is garbage-collected.
        weakref.finalize(self, self._stream.close)
        for work in (partial(self._stream.serve, run), self._stream.fill_up):
            threading.Thread(target=work, daemon=True, name=f"requests of {origin}").start()

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Waits for the result of this request; raises the error that ended the program, if it has ended."""
        return self._stream.request(arrays)


Runtime = LoadedExecutable | QueueRuntime
"""A started program: `run` serves one request, from any thread."""


def start(path: str, values: Values, timeout: float) -> Runtime:
    """Loads and starts a file's program; `values` has the values of variables, and of arguments beside queues.

    Raises OSError, InvalidFile, ConfigurationError for values that do not fit, TypeError for other dtypes.
    """
    file = read_executable(path)
    queues = queue_signatures(file.module)
    if not queues:
        return LoadedExecutable(file, _by_name(values, list(file.missing())), path)
    return QueueRuntime(file, queues, values, timeout, path)


def _leaves(kind: str, signature: QueueSignature) -> tuple[TensorInfo, ...]:
    return tuple(tensor_info(f"{kind}_{k}", shape) for k, shape in enumerate(signature.shapes))


def _by_name(values: Values, names: list[str]) -> dict[str, Any]:
    """The values by name; raises ConfigurationError unless there is exactly one for each name."""
    if not isinstance(values, Mapping) and len(values) == len(names):
        return dict(zip(names, values, strict=True))
    if not isinstance(values, Mapping) or set(values) != set(names):
        received = sorted(values) if isinstance(values, Mapping) else f"{len(values)} values"
        raise ConfigurationError(f"Embedded application runtime expects the inputs {names}. Received: {received}.")
    return dict(values)


def _start_values(file: ExecutableFile, values: Values) -> tuple[list[RowFeed], list[Any]]:
    """Arguments of the function, the same for every run, and the buffers of variables."""
    missing = list(file.missing())
    named = _by_name(values, [*(info.name for info in file.signature.inputs), *missing])
    feeds = []
    for info in file.signature.inputs:
        array = fitting_array(named[info.name], info)
        feeds.append(RowFeed(array if array.ndim else array[None]))
    return feeds, device_buffers(file, {name: named[name] for name in missing})
