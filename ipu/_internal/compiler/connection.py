"""Programs on a system that is never attached to a device: compiled and stored, but not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import tensorflow as tf

from engine.runtime.buffers import DeviceBuffer
from engine.runtime.feeds import RowFeed
from engine.runtime.observer import Observer, RunningCall
from engine.runtime.rings import AnyRing, InfeedRing

if TYPE_CHECKING:
    from engine.runtime.executable import Executable


class DetachedExecutable:
    """An executable that does not run. With DeviceConnectionType.PRE_COMPILE its results are zeros; else it raises."""

    def __init__(self, executable: Executable, pre_compile: bool) -> None:
        self.executable = executable
        self._pre_compile = pre_compile

    def run(
        self,
        steps: int,
        feeds: list[RowFeed],
        variables: list[DeviceBuffer],
        outputs: Literal["last", "all"] = "last",
        observer: Observer | None = None,
        queues: Mapping[str, AnyRing] | None = None,
    ) -> list[np.ndarray]:
        """Zeros in the shapes of the results, and one zero row in each outfeed; variables are unchanged.

        Raises FailedPreconditionError with DeviceConnectionType.NEVER.
        """
        del feeds, variables
        if not self._pre_compile:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Expected a device to run a program on. Received: device_connection.type = DeviceConnectionType.NEVER. "
                "Configure the system with ALWAYS or ON_DEMAND, or with PRE_COMPILE to get zeros.",
            )
        for ring in (queues or {}).values():
            if not isinstance(ring, InfeedRing):
                ring.append([np.zeros(shape.dimensions, shape.dtype) for shape in ring.shapes])
        axis = (steps,) if outputs == "all" else ()
        results = [np.zeros((*axis, *s.dimensions), s.dtype) for s in self.executable.program.output_shapes]
        if observer is not None:
            from engine.runtime.executor import new_state

            observer.begin(RunningCall(new_state(workers=1), results))
            observer.end(steps)
        return results
