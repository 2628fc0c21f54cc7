"""Tests run on Keras 3 or on tf_keras, under --all on both unless marked for one, from the same random state."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.keras import seeding
from tests.keras.helpers import KITS, Kit


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Models and comparisons of the framework under test; `keras3_only` of the helpers picks one."""
    return KITS[request.param]


@pytest.fixture
def keras(kit: Kit) -> ModuleType:
    """The framework under test."""
    return kit.keras


@pytest.fixture(autouse=True, scope="module")
def kernels_kept() -> Iterator[None]:
    with seeding.kernels_kept():
        yield


@pytest.fixture(autouse=True)
def seed() -> None:
    for kit in KITS.values():
        kit.keras.utils.set_random_seed(7)
