"""A process that waits describes the other processes by their signs of life."""

from __future__ import annotations

import os
import re

from ipu._internal.processes.signs import Sign, own_sign, started_here, state_of
from ipu._internal.processes.waiting import WaitingCollective


def test_signs_tell_processes_that_compute_wait_and_are_silent() -> None:
    waiting = WaitingCollective("sum", [0, 1, 2, 3])
    for seconds in (1.0, 2.0, 3.0):
        assert waiting.look({}) == ([0, 1, 2, 3] if seconds == 1 else [0, 1, 2])
        signs = [(0, Sign("sum", "a.py:1", 0.0)), (1, Sign("", "a.py:2 in load", seconds)), (2, Sign("max", "", 0.5))]
        waiting.hear([*signs, *([(3, Sign("", "", 0.1))] if seconds == 1 else [])], 1.0)
        waiting.others[3].asked |= seconds == 1
    assert waiting.first(0) and not waiting.first(1)
    assert waiting.passes(1.0) and waiting.passes(3.0) and not waiting.passes(2.0)
    assert str(waiting) == (
        "process 3 has given no sign of life for 2 s; process 1 computes, at a.py:2 in load; process 2 waits in max"
    )
    assert waiting.silent(1.9) and not waiting.silent(2.0)


def test_signs_of_this_process() -> None:
    sign, state = own_sign("sum"), state_of(os.getpid())
    assert sign.call == "sum" and re.match(rf"{re.escape(__file__)}:\d+ in test_signs_of", sign.line)
    assert state is not None and state[0] == "R" and 0 <= state[1] <= sign.seconds + 1  # 0 in a new fork
    assert state_of(2**22 + 1) is None
    assert isinstance(started_here(), dict)
