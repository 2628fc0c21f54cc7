"""`reset_ipu_seed`: replicas draw different numbers, and repeat them after the same seed; equal ones are refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from ipu.config import IPUConfig
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy
from ipu.utils import reset_ipu_seed


def configure(ipus: int) -> None:
    config = IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def test_replicas_draw_different_numbers() -> None:
    configure(2)
    queue = IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def draw() -> None:
        queue.enqueue(tf.random.uniform((8,)))

    rows = []
    for seed in (7, 7, 8):
        reset_ipu_seed(seed)
        IPUStrategy().run(draw)
        rows.append(queue.dequeue().numpy()[0])
    assert rows[0].shape == (2, 8) and not np.array_equal(rows[0][0], rows[0][1])
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_identical_replicas_are_refused_where_there_may_be_several() -> None:
    configure(2)
    with pytest.raises(NotImplementedError, match=r"experimental_identical_replicas=False.*of 2 IPUs"):
        reset_ipu_seed(7, experimental_identical_replicas=True)
    configure(1)
    reset_ipu_seed(7, experimental_identical_replicas=True)
