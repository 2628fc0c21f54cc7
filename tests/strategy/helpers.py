"""Configurations and data sets for the tests of queues and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from engine.compile_progress import COMPILED, COMPILING, TRACING
from ipu.config import IPUConfig


def replicas(count: int) -> None:
    """Configures a device of `count` IPUs, so that programs have as many replicas."""
    config = IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()


def numbers(count: int | None = None, shape: tuple[int, ...] = ()) -> tf.data.Dataset:
    """A data set of 0, 1, 2, ... as float32 tensors of `shape`: `count` of them, or endless."""
    dataset = tf.data.Dataset.range(2**40 if count is None else count)
    return dataset.map(lambda i: tf.broadcast_to(tf.cast(i, tf.float32), shape))


def compiled(function: Callable[..., Any]) -> Any:
    """Wraps a function so that it is compiled as a whole."""
    return tf.function(function, jit_compile=True)


def unconverted(function: Callable[..., Any]) -> Any:
    """Compiles like `compiled`, but without AutoGraph, which takes a fifth of a test's time."""
    return tf.function(function, jit_compile=True, autograph=False)


def written(capfd: pytest.CaptureFixture[str]) -> str:
    """Text on stderr, without the progress of compilation that a cold cache of codelets adds."""
    lines = capfd.readouterr().err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith((COMPILING, COMPILED, TRACING)))
