"""The programs of one model and mode: each batch signature is traced and compiled once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu._device import current_system
from ipu.compiler.program import Program
from ipu.compiler.trace import trace_step
from keras_ext.epochs.feeds import BatchSignature

logger = logging.getLogger("ipu")


class ProgramCache:
    """Programs by batch signature. Dies with the function that owns it, which Keras drops at `compile()`."""

    def __init__(self) -> None:
        self._programs: dict[Any, Program] = {}
        self._optimizer: Any = None
        self._system_version: int | None = None

    def latest(self) -> Program | None:
        """The program made last."""
        return next(reversed(self._programs.values()), None)

    def other_than(self, signature: BatchSignature) -> BatchSignature | None:
        """The signature of the last program made, if there is one but none for `signature`."""
        if signature in self._programs:
            return None
        return next(reversed(self._programs), None)

    def get(self, signature: BatchSignature, optimizer: Any, step: Callable[[Any], Any]) -> Program:
        """The program of `step` for batches of `signature`, made now if there is none.

        Raises UnsupportedOperation for a step that XLA or the engine cannot compile.
        """
        system_version = current_system().version
        if optimizer is not self._optimizer or system_version != self._system_version:
            self._programs.clear()
            self._optimizer, self._system_version = optimizer, system_version
        program = self._programs.get(signature)
        if program is None:
            _notice_unused_ipus()
            program = self._programs[signature] = compile_step(step, signature)
        return program


_noticed_ipus: set[int] = set()


def _notice_unused_ipus() -> None:
    """Says once for each number of IPUs that a model runs on one of them."""
    ipus = current_system().device().ipus
    if ipus > 1 and ipus not in _noticed_ipus:
        _noticed_ipus.add(ipus)
        logger.warning(
            "The configuration selects %d IPUs, but this version does not replicate or pipeline models: it trains "
            "on one. Set auto_select_ipus = 1 to say so.",
            ipus,
        )


def compile_step(step: Callable[[Any], Any], signature: BatchSignature) -> Program:
    """Traces a step that takes one nested batch, and compiles it."""

    def flat_step(*arrays: tf.Tensor) -> Any:
        return step(signature.layout.unflatten(iter(arrays)))

    specs = [
        tf.TensorSpec(shape, tf.as_dtype(dtype))
        for shape, dtype in zip(signature.shapes, signature.dtypes, strict=True)
    ]
    return Program(trace_step(flat_step, specs))
