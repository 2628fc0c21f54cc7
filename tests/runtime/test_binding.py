"""Programs whose variables change between calls, and a call that is interrupted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compile import compile_module
from engine.ir.builder import Builder
from engine.runtime.executable import Executable
from tests.engine.running import buffers


def test_variables_that_were_being_bound_as_a_call_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes while blocks contain the addresses of other variables: the first ones are bound again."""
    builder = Builder()
    variable = builder.parameter("f32", (4,))
    module = builder.module(builder.tuple(builder.add(variable, builder.splat(1.0, (4,)))), {0: 0})
    executable = compile_module(module, ["variable"], {})
    one, other = buffers([np.zeros(4, np.float32)]), buffers([np.full(4, 100.0, np.float32)])
    executable.run(1, [], one)
    relocate, calls = Executable._relocate, 0

    def interrupted(self: Executable, *arguments: Any) -> None:
        nonlocal calls
        relocate(self, *arguments)
        calls += 1
        if calls == len(self._blocks):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Executable, "_relocate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            executable.run(1, [], other)
    executable.run(1, [], one)
    assert one[0].read().tolist() == [2.0] * 4 and other[0].read().tolist() == [100.0] * 4
