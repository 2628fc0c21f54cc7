"""Fixtures shared by the programs of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph
