"""Name scopes that carry the number of a stage into every operation of a step, forward and gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from engine.partition.stages import STAGE


class StageScopes:
    """The scopes of one run of a graph; entering one again gives the same scope, not a numbered one."""

    def __init__(self) -> None:
        self._entered: dict[tuple[str, int], str] = {}

    @contextlib.contextmanager
    def stage(self, stage: int) -> Iterator[None]:
        """Operations made within have the stage in their names."""
        key = (tf.get_current_name_scope(), stage)
        with tf.name_scope(self._entered.get(key, f"{STAGE}{stage}")) as entered:
            self._entered[key] = entered
            yield
