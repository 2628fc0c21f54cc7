"""Every test runs on the engine, or on the definitions while there is no engine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import keras
import pytest

from keras_ext.debug import use_definitions


@pytest.fixture(autouse=True)
def executable() -> Iterator[None]:
    with use_definitions(find_spec("engine.compile") is None):
        yield


@pytest.fixture(autouse=True)
def seed() -> None:
    keras.utils.set_random_seed(7)
