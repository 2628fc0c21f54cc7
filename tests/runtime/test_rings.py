"""Rings on the host's side lose nothing, end waits on request, and refuse wrong rows."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from engine.errors import ConfigurationError, FeedEnded
from engine.ir import Shape
from engine.runtime.rings import MOST_SLOTS, InfeedRing, OutfeedRing, suggested_slots
from tests.interrupting import PATIENCE_SECONDS, interrupted_when, wait_for

PAIR = [Shape("f32", (2,)), Shape("s32")]


def rows(first: int, count: int) -> list[np.ndarray]:
    numbers = np.arange(first, first + count)
    return [np.stack([numbers, -numbers], 1).astype(np.float32), numbers.astype(np.int32)]


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_rows_come_out_in_order_however_they_are_put(slots: int) -> None:
    """Blocks are larger than the ring or empty, and the consumer has its own pace."""
    ring = InfeedRing(PAIR, slots)
    taken = []

    def take() -> None:
        for _ in range(60):
            taken.append(ring.next_row(timeout=PATIENCE_SECONDS))

    thread = threading.Thread(target=take)
    thread.start()
    first = 0
    for count in (1, 0, 5, 14, 2, 38):
        ring.put(rows(first, count))
        first += count
    thread.join()
    np.testing.assert_array_equal([int(row[1]) for row in taken], np.arange(60))
    np.testing.assert_array_equal([row[0] for row in taken], rows(0, 60)[0])
    assert (ring.available(), ring.space(), ring.rows) == (0, slots, 60)


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_rows_of_an_outfeed_are_taken_once_each(slots: int) -> None:
    ring = OutfeedRing(PAIR, slots)
    found: list[np.ndarray] = []

    def take() -> None:
        while (taken := ring.take()) is not None:
            assert len(taken[0]) == len(taken[1]) <= slots
            found.extend(taken[1])
            ring.wait(0.5)

    thread = threading.Thread(target=take)
    thread.start()
    for k in range(60):
        ring.append([leaf[0] for leaf in rows(k, 1)])
    while ring.waiting:
        time.sleep(0.001)
    ring.close()
    thread.join()
    np.testing.assert_array_equal(found, np.arange(60))


def test_what_is_taken_is_a_copy() -> None:
    ring = OutfeedRing([Shape("f32")], 2)
    ring.append([np.float32(1)])
    taken = ring.take()
    assert taken is not None
    for k in range(2):
        ring.append([np.float32(7 + k)])
    assert taken[0].tolist() == [1]


def test_a_full_ring_makes_the_host_wait_until_it_is_closed() -> None:
    ring = InfeedRing(PAIR, 2)

    def close_when_full() -> None:
        assert wait_for(lambda: ring.host_waits > 0)
        ring.close(ValueError("enough"))

    closer = threading.Thread(target=close_when_full)
    closer.start()
    with pytest.raises(ValueError, match="enough"):
        ring.put(rows(0, 5))
    closer.join()
    assert (ring.available(), ring.host_waits) == (2, 1)
    with pytest.raises(ValueError, match="enough"):
        ring.put(rows(5, 1))
    assert [int(ring.next_row()[1]) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="enough"):
        ring.next_row()


def test_ctrl_c_ends_the_wait_for_space() -> None:
    ring = InfeedRing(PAIR, 1)
    with interrupted_when(lambda: ring.host_waits > 0):
        ring.put(rows(0, 2))
    assert int(ring.next_row()[1]) == 0


def test_waits_end_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="within 0.05 seconds"):
        InfeedRing(PAIR, 1).next_row(timeout=0.05)
    outfeed = OutfeedRing(PAIR, 1)
    assert not outfeed.wait(0.05)
    assert 0.1 <= time.monotonic() - began
    outfeed.close()
    began = time.monotonic()
    assert not outfeed.wait(10 * PATIENCE_SECONDS)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert outfeed.take() is None


def test_closed_without_an_error_means_ended() -> None:
    ring = InfeedRing(PAIR, 1)
    ring.close()
    with pytest.raises(FeedEnded, match="stays open"):
        ring.next_row()
    with pytest.raises(EOFError):
        ring.put(rows(0, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        rows(0, 3)[:1],
        [rows(0, 3)[0].astype(np.float64), rows(0, 3)[1]],
        [rows(0, 3)[0][:, :1], rows(0, 3)[1]],
        [rows(0, 3)[0], rows(0, 2)[1]],
        [rows(0, 3)[0][0], rows(0, 3)[1]],
    ],
    ids=["leaves", "dtype", "dimensions", "counts", "no leading axis"],
)
def test_rows_of_another_kind_are_refused(wrong: list[np.ndarray]) -> None:
    ring = InfeedRing(PAIR, 4)
    with pytest.raises(ConfigurationError, match=r"Expected k rows of f32\[2\], k rows of s32\[\].*Received"):
        ring.put(wrong)
    assert ring.available() == 0


def test_a_ring_has_slots_many_of_them_for_small_rows() -> None:
    with pytest.raises(ConfigurationError, match="at least 1 slot. Received: 0"):
        OutfeedRing(PAIR, 0)
    assert suggested_slots([Shape("f32")]) == MOST_SLOTS
    assert suggested_slots([Shape("f32", (1 << 24,))]) == 2
    assert suggested_slots([Shape("f32", (128, 128)), Shape("f32", (0,))]) == 15


def test_rows_that_come_for_ever() -> None:
    ring = InfeedRing(PAIR, 3)
    with pytest.raises(ConfigurationError, match="Expected 3 rows"):
        ring.put_for_ever(rows(0, 2))
    ring.put_for_ever(rows(0, 3))
    assert [int(ring.next_row(timeout=0.1)[1]) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    ring.close()
    assert int(ring.next_row(timeout=0.1)[1]) == 1


def test_rows_that_are_discarded() -> None:
    ring = OutfeedRing(PAIR, 2)
    ring.discard()
    for _ in range(10):
        ring.append([leaf[0] for leaf in rows(0, 1)])
    taken = ring.take()
    assert taken is not None and [len(leaf) for leaf in taken] == [0, 0]
    assert ring.waiting == 0 and ring.rows == 10
    ring.append([leaf[0] for leaf in rows(0, 1)])
    ring.close()
    assert ring.take() is None
