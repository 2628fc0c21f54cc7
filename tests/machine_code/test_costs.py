"""Times of processors that were measured, and a default that is safe anywhere."""

from __future__ import annotations

from math import isinf

import pytest

from engine.machine_code import costs


@pytest.mark.parametrize(("feature", "splits"), [("avx512f", False), ("amx-bf16", True)])
def test_only_measured_processors_split_products(feature: str, splits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "target", lambda: ("unknown", frozenset({feature})))
    found = costs.costs.__wrapped__()
    assert isinf(found.split_multiply_add) is not splits
    assert not splits or found.split_multiply_add < found.multiply_add
