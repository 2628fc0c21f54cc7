"""Keras tests run with both Keras; the configuration of a test ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from ipu.config import reset_ipu_configuration
from tests.keras.helpers import KITS, Kit


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Models of Keras 3 and of tf_keras."""
    return KITS[request.param]


@pytest.fixture
def keras(kit: Kit) -> ModuleType:
    """The framework under test."""
    return kit.keras


@pytest.fixture(autouse=True)
def configuration() -> Iterator[None]:
    """Resets the configuration before and after a test."""
    yield
    reset_ipu_configuration()
