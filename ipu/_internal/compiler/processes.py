"""Programs whose replicas are in several processes: their transport, and the functions that call it."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.host_functions import PythonFunction
from engine.ir import Module
from ipu._internal.compiler.buckets import Buckets
from ipu._internal.config.system import current_system
from ipu._internal.processes.active import active
from ipu._internal.processes.settings import BUCKET_BYTES, GRADIENT_TYPE
from ipu._internal.processes.transport import Transport

if TYPE_CHECKING:
    from engine.partition.processes import Processes


def transport_of(strategy: tf.distribute.Strategy | None = None) -> Transport | None:
    """The transport between the processes of a strategy's programs; None where they run in one process.

    It is the strategy's own, or the active one if the configuration has several processes.
    """
    strategy = tf.distribute.get_strategy() if strategy is None else strategy
    transport: Transport | None = getattr(strategy, "transport", None)
    if transport is None and current_system().config.experimental.multi_replica_distribution.process_count > 1:
        transport = active()
    return transport if transport is not None and transport.size > 1 else None


def transport_of_functions() -> Transport | None:
    """The transport of collectives in functions of the strategy in scope; None where they do not span processes."""
    return transport_of() if getattr(tf.distribute.get_strategy(), "collectives_span_processes", True) else None


def processes_of(module: Module, transport: Transport | None) -> Processes | None:
    """The processes of a traced program; None without a transport. Keep them until the program has been compiled."""
    if transport is None:
        return None
    # The engine's passes load Numba, which takes long: imported only for a program.
    from engine.partition.processes import Processes

    name, kind = f"in program {_digest(module)}", gradient_type()
    buckets = Buckets(transport, name)

    def all_gather(array: np.ndarray) -> list[np.ndarray]:
        return [transport.all_gather(array, name)]

    begin = PythonFunction("all-reduce of processes begins", buckets.beginning())
    return Processes(
        count=transport.size,
        index=transport.rank,
        all_reduce=buckets.all_reduce_function(),
        all_gather=PythonFunction("all-gather of processes", all_gather),
        begin=begin,
        begin_gradients=PythonFunction("all-reduce of gradients begins", buckets.beginning(kind)) if kind else begin,
        end=PythonFunction("all-reduce of processes ends", buckets.end),
        bucket_bytes=bucket_bytes(),
    )


def gradient_type() -> type | None:
    """The type that gradients are rounded to between processes; None for no rounding. Raises ConfigurationError."""
    text = os.environ.get(GRADIENT_TYPE, "float32")
    if text not in ("float32", "bfloat16"):
        raise ConfigurationError(f"Expected {GRADIENT_TYPE} to be float32 or bfloat16. Received: {text!r}.")
    return ml_dtypes.bfloat16 if text == "bfloat16" else None


def bucket_bytes() -> int:
    """The bytes of a bucket of gradients. Raises ConfigurationError unless the number is above 0."""
    text = os.environ.get(BUCKET_BYTES, str(4 << 20))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"Expected {BUCKET_BYTES} to be an integer of at least 1. Received: {text!r}.")
    return int(text)


def _digest(module: Module) -> str:
    """Eight digits for the operations of a program; names and constants may differ between processes."""
    digest = hashlib.blake2b(digest_size=4)
    for computation in module.computations():
        numbers = {instruction: number for number, instruction in enumerate(computation.instructions)}
        for each in computation.instructions:
            digest.update(f"{each.opcode} {each.shape} {[numbers[o] for o in each.operands]};".encode())
    return digest.hexdigest()
