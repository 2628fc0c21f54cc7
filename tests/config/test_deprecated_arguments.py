"""Deprecated arguments warn once each, with a replacement, and programs run on."""

from __future__ import annotations

import logging

import pytest
import tensorflow as tf

from ipu._internal.config import deprecation
from ipu._internal.config.deprecation import deprecated_arguments
from ipu.ipu_infeed_queue import IPUInfeedQueue, IPUIterator
from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from keras_ext.queue_options import QueueOptions


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(deprecation, "_warned", set())
    caplog.set_level(logging.WARNING, "ipu.config")
    return caplog


class Model(QueueOptions):
    """The options of queues of a model."""

    distribute_strategy = None


def data() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(tf.zeros([2])).repeat()


def test_infeed_queues(told: pytest.LogCaptureFixture) -> None:
    IPUInfeedQueue(data())
    IPUInfeedQueue(data(), None, 0, prefetch_depth=2)
    assert told.messages == []
    for number in range(2):
        IPUInfeedQueue(data(), f"by place {number}", 0, 1, data_to_prefetch=4)
    assert [message.partition(":")[0] for message in told.messages] == [
        f"The argument {name} of IPUInfeedQueue is deprecated"
        for name in ("feed_name", "replication_factor", "data_to_prefetch")
    ]
    assert told.messages[2].endswith("use prefetch_depth instead. It has no effect.")
    IPUIterator(data(), replication_factor=2)
    assert len(told.messages) == 3


def test_outfeed_queues(told: pytest.LogCaptureFixture) -> None:
    IPUOutfeedQueue()
    IPUOutfeedQueue(IPUOutfeedMode.LAST)
    IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.ALL, device_ordinal=0)
    assert told.messages == []
    for _ in range(2):
        IPUOutfeedQueue(replication_factor=2, io_batch_size=4)
    assert len(told.messages) == 2
    assert "accumulate_outfeed" in told.messages[1]


def test_options_of_the_queues_of_keras(told: pytest.LogCaptureFixture) -> None:
    model = Model()
    model.set_infeed_queue_options(prefetch_depth=2)
    model.set_outfeed_queue_options(buffer_depth=2)
    assert told.messages == []
    for _ in range(2):
        model.set_infeed_queue_options(data_to_prefetch=2)
        model.set_outfeed_queue_options(io_batch_size=2)
    assert [message.split()[4] for message in told.messages] == [
        "set_infeed_queue_options",
        "set_outfeed_queue_options",
    ]


def test_a_wrong_call_is_pythons_to_refuse(told: pytest.LogCaptureFixture) -> None:
    function = deprecated_arguments("f", old="use new")(lambda new, old=None: (new, old))
    with pytest.raises(TypeError, match="unexpected keyword argument 'older'"):
        function(1, older=2)
    assert function(1, old=None) == (1, None) and told.messages == []
    assert function(1, 2) == (1, 2) and len(told.messages) == 1
