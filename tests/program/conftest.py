"""Tests of programs assume the cache for which sizes of arrays in them were chosen, whatever this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.machine_code import costs


@pytest.fixture(autouse=True)
def large_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Passes fuse arrays as for a second-level cache of 2 MiB."""
    monkeypatch.setattr(costs, "second_level", lambda: 1 << 21)
    costs.costs.cache_clear()
    yield
    costs.costs.cache_clear()
