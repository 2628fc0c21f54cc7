"""Fixture for both ways to make workers."""

from __future__ import annotations

import pytest

from engine.runtime import workers
from engine.runtime.native_threads import has_native_threads


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Workers as threads that Python does not know, if the system can make them, and as threads of Python."""
    if request.param == "python":
        monkeypatch.setattr(workers, "has_native_threads", lambda: False)
    elif not has_native_threads():
        pytest.skip("threads are Python's here")
    return str(request.param)
