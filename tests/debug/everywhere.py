"""A pytest plugin: whatever tests compile runs on the debug executor. `pytest -p tests.debug.everywhere tests`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def on_the_debug_executor() -> Iterator[None]:
    """Runs each test inside `debugging`, as programs that are compiled there stay debug executables."""
    from engine.debug import debugging

    with debugging():
        yield
