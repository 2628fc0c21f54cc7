"""Every test starts from the same random state."""

from __future__ import annotations

import keras
import pytest


@pytest.fixture(autouse=True)
def seed() -> None:
    keras.utils.set_random_seed(7)
