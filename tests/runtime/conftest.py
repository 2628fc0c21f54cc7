"""Both ways to make workers."""

from __future__ import annotations

import pytest

from engine.runtime import workers
from engine.runtime.native_threads import has_native_threads


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Threads that Python does not know, where the system can, and threads of Python's."""
    if request.param == "python":
        monkeypatch.setattr(workers, "has_native_threads", lambda: False)
    elif not has_native_threads():
        pytest.skip("threads are Python's here")
    return str(request.param)
