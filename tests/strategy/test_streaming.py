"""Rows of a ring as an observer sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ir import Shape
from engine.runtime.rings import OutfeedRing
from ipu._internal.pipelining.streaming import _StreamedCall


def test_rows_of_replicas_come_one_by_one() -> None:
    """A full ring is emptied even if it has only a part of a step: otherwise the device would wait for ever."""
    call: Any = None
    ring = OutfeedRing([Shape("f32")], 2)
    streamed = _StreamedCall(call, ring, [0], 4, replicas=2)
    ring.append([np.float32(0)])
    assert streamed.completed() == 1
    for value in (1, 2):
        ring.append([np.float32(value)])
    assert streamed.completed() == 3
    ring.append([np.float32(3)])
    assert streamed.completed() == 3, "two are there to be taken first"
    streamed.taken(2)
    assert streamed.completed() == 4
    np.testing.assert_array_equal(streamed.results[0], np.arange(4))
