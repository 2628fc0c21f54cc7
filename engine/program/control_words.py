"""Words in which a program, its workers and its host tell each other about loops and queues."""

from __future__ import annotations

from enum import IntEnum

COUNTERS = 5
"""Loops inside each other whose iterations workers count."""
CONTROL_LINE = 16  # words: two cache lines, as processors fetch them in pairs


class Ring(IntEnum):
    """Words of a control block, a line apart."""

    WRITTEN = 0  # rows that the producer has finished
    READ = 1  # rows whose slots the consumer has released
    CLOSED = 2  # the host sends or takes no more rows
    WAITS = 3  # how often the device waited for the host
    ENDED = 4  # the device has found the ring closed
    TAKEN = 5  # infeeds: rows that the device has taken; the last may still be in use
    SLOTS = 6  # never changes, nor does the word after it: whether each slot of a leaf is a RowSlot
    WORDS = 7


class CallBlock(IntEnum):
    """Words of a call block: addresses, and a number."""

    STOP = 0
    LEAVE_AT = 1
    PASSED = 2  # the number of barriers that worker 0 has passed; other workers' numbers follow, a CONTROL_LINE apart
    ABORT = 3
    PAUSES = 4  # the number of pauses before a waiting worker naps
    NAP = 5  # f(int microseconds)
    WORDS = 6
