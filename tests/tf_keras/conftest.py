"""Fixtures of tests of tf_keras alone: its kit, and the same random state for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.keras import seeding
from tests.keras.helpers import KITS, Kit


@pytest.fixture
def kit() -> Kit:
    """Models and comparisons of tf_keras."""
    return KITS["tf_keras"]


@pytest.fixture(autouse=True, scope="module")
def kernels_kept() -> Iterator[None]:
    with seeding.kernels_kept():
        yield


@pytest.fixture(autouse=True)
def seed(kit: Kit) -> None:
    kit.keras.utils.set_random_seed(7)
