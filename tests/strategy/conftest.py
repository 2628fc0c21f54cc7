"""Fixtures shared by the tests of programs that write their own loops."""

from __future__ import annotations

import pytest

from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1
from tests.keras.helpers import KITS, Kit


@pytest.fixture
def strategy() -> IPUStrategyV1:
    """A strategy for the one device there is."""
    return IPUStrategy()


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Models of each Keras."""
    return KITS[request.param]
