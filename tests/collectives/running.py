"""Runs a function on replicas, without a strategy: traced, replicated, and executed by the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.replication import replicated
from ipu._internal.compiler.trace import trace_step


class OnReplicas:
    """A function as a program of R replicas; a call gives what replica 0 returns, as NumPy arrays."""

    def __init__(self, function: Callable[..., Any], replicas: int, *arguments: Any, processes: Any = None) -> None:
        specs = [tf.TensorSpec(np.shape(a), np.asarray(a).dtype) for a in arguments]
        self.traced = replicated(trace_step(function, specs), replicas, processes)
        self.program = TracedProgram(self.traced)

    def __call__(self, *arguments: Any) -> Any:
        feeds = [RowFeed(np.ascontiguousarray(np.atleast_1d(a))) for a in arguments]
        results = self.program.pack([tf.constant(r) for r in self.program.run(1, feeds)])
        return tf.nest.map_structure(lambda t: t.numpy(), results)


def on_replicas(function: Callable[..., Any], replicas: int, *arguments: Any) -> Any:
    """One call."""
    return OnReplicas(function, replicas, *arguments)(*arguments)
