"""Runs a program on the engine, with one worker and with two, and with XLA."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.trace import trace_step
from tests.engine.running import buffers
from tests.fuzz.program import Program

STEPS = 2


class RefusedByXLA(Exception):
    """Raised where XLA cannot compile the program. No user can run such a program, so the engine need not run it."""


class Different(Exception):
    """Raised for wrong results of the engine; `names` are the names of the wrong results, as far as known."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


def specs_of(values: list[np.ndarray]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(x.shape, tf.as_dtype(x.dtype)) for x in values]


def compiled(function: Callable[..., Any]) -> Callable[..., list[np.ndarray]]:
    """The function on arrays, with `jit_compile=True`. Its calls raise RefusedByXLA."""
    made = tf.function(function, jit_compile=True, autograph=False)

    def call(*values: np.ndarray) -> list[np.ndarray]:
        try:
            return [r.numpy() for r in made(*map(tf.constant, values))]
        except (tf.errors.OpError, LookupError) as error:
            raise RefusedByXLA(str(error)) from error

    return call


def on_engine(program: Program) -> list[np.ndarray]:
    """The results of the program traced as users' steps are. Raises Different where the number of workers matters."""
    values = list(program.inputs.values())
    try:
        traced = trace_step(program.function, specs_of(values))
    except (UnsupportedOperation, LookupError):
        # If XLA fails too, this raises RefusedByXLA.
        compiled(program.function)(*values)
        raise
    # The same program gets its data as variables and as feeds.
    feeds = [x.ndim == 0 or len(x) > 0 if k % 2 == program.seed % 2 else False for k, x in enumerate(values)]
    roles = ["feed" if fed else "variable" for fed in feeds]
    executable = Executable(build_program(traced.module, roles, traced.constants, verify=True))
    rows = [RowFeed(_twice(x)) for x, fed in zip(values, feeds, strict=True) if fed]
    variables = buffers([x for x, fed in zip(values, feeds, strict=True) if not fed])
    found = []
    for workers in (1, 2):
        with threads(workers):
            found.append(executable.run(STEPS, rows, variables))
    for number, (one, two) in enumerate(zip(*found, strict=True)):
        if one.tobytes() != two.tobytes():
            raise Different(f"Result {number} with two workers differs from that with one.", program.results)
    return found[0]


def _twice(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.stack([x, x]) if x.ndim == 0 else np.concatenate([x, x]))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Sets the number of workers of every call, however little work the call has."""
    given = mock.patch.dict(os.environ, NUMBA_NUM_THREADS=str(count))
    with given, mock.patch("engine.runtime.executable.inline_work", lambda: 0):
        yield
