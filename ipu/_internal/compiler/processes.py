"""Programs whose replicas are in several processes: which transport they use, and what their calls of it do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.host_functions import PythonFunction
from engine.ir import Module
from ipu._internal.config.system import current_system
from ipu._internal.processes.active import active
from ipu._internal.processes.settings import GRADIENT_TYPE
from ipu._internal.processes.transport import Transport

if TYPE_CHECKING:
    from engine.partition.processes import Processes


def transport_of(strategy: tf.distribute.Strategy | None = None) -> Transport | None:
    """The transport between the processes of a strategy's programs; None where they run in one process.

    It is the strategy's own, or for any where the configuration has several processes the active one.
    """
    strategy = tf.distribute.get_strategy() if strategy is None else strategy
    transport: Transport | None = getattr(strategy, "transport", None)
    if transport is None and current_system().config.experimental.multi_replica_distribution.process_count > 1:
        transport = active()
    return transport if transport is not None and transport.size > 1 else None


def transport_of_functions() -> Transport | None:
    """The same for collectives in functions of the strategy in scope."""
    return transport_of() if getattr(tf.distribute.get_strategy(), "collectives_span_processes", True) else None


def processes_of(module: Module, transport: Transport | None) -> Processes | None:
    """The processes of a traced program; None without a transport. Keep them until the program has been compiled."""
    if transport is None:
        return None
    # The engine's passes load Numba, which takes long: imported only for a program.
    from engine.partition.processes import Processes

    name, kind = f"in program {_digest(module)}", gradient_type()

    def all_gather(array: np.ndarray) -> list[np.ndarray]:
        return [transport.all_gather(array, name)]

    all_reduce = PythonFunction("all-reduce of processes", _AllReduce(transport, name))
    gradients = PythonFunction("all-reduce of gradients", _AllReduce(transport, name, kind)) if kind else all_reduce
    gather = PythonFunction("all-gather of processes", all_gather)
    return Processes(transport.size, transport.rank, all_reduce, gradients, gather)


def gradient_type() -> type | None:
    """The type that gradients are rounded to between processes; None for their own. Raises ConfigurationError."""
    text = os.environ.get(GRADIENT_TYPE, "float32")
    if text not in ("float32", "bfloat16"):
        raise ConfigurationError(f"Expected {GRADIENT_TYPE} to be float32 or bfloat16. Received: {text!r}.")
    return ml_dtypes.bfloat16 if text == "bfloat16" else None


class _AllReduce:
    """Sums of arrays over the processes: those of one dtype in one call of the transport, perhaps rounded before."""

    def __init__(self, transport: Transport, name: str, rounded: type | None = None) -> None:
        self._transport, self._name, self._rounded = transport, name, rounded
        self._buffers: dict[tuple, tuple[list[np.ndarray], list[np.ndarray]]] = {}

    def __call__(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        key = tuple((array.dtype, array.shape) for array in arrays)
        if key not in self._buffers:
            self._buffers[key] = self._joined(arrays)
        buffers, parts = self._buffers[key]
        for part, array in zip(parts, arrays, strict=True):
            part[...] = array
        for buffer in buffers:
            self._transport.all_reduce_in_place(buffer, self._name)
        return [part.astype(array.dtype, copy=False) for part, array in zip(parts, arrays, strict=True)]

    def _joined(self, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """A buffer for each dtype, and the part of each array."""
        buffers, parts = [], list(arrays)
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            numbers = [number for number, array in enumerate(arrays) if array.dtype == dtype]
            kind = np.dtype(self._rounded) if self._rounded and dtype == np.float32 else dtype
            buffers.append(np.empty(sum(arrays[number].size for number in numbers), kind))
            ends = np.cumsum([arrays[number].size for number in numbers])
            for number, part in zip(numbers, np.split(buffers[-1], ends[:-1]), strict=True):
                parts[number] = part.reshape(arrays[number].shape)
        return buffers, parts


def _digest(module: Module) -> str:
    """Eight digits for the operations of a program; names and constants may differ between processes."""
    digest = hashlib.blake2b(digest_size=4)
    for computation in module.computations():
        numbers = {instruction: number for number, instruction in enumerate(computation.instructions)}
        for each in computation.instructions:
            digest.update(f"{each.opcode} {each.shape} {[numbers[o] for o in each.operands]};".encode())
    return digest.hexdigest()
