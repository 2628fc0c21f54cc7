"""Values that count as integers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.integers import is_integer


@pytest.mark.parametrize("value", [0, -3, 2**70, np.int8(-1), np.uint64(2**63)])
def test_integers(value: object) -> None:
    assert is_integer(value)


@pytest.mark.parametrize("value", [True, np.bool_(True), 1.0, np.float32(1), "1", None, np.array(1)])
def test_others(value: object) -> None:
    assert not is_integer(value)
