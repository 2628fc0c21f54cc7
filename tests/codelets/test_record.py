"""Records: numbers of fields, words, relocations and tables; kernels read by the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.language.build import codelet
from engine.codelets.language.memory import load_i64, store_i64
from engine.codelets.language.record import Address, Record, Table, block, word
from engine.errors import InternalError


class Pair(Record):
    first: int
    second: int


class Source(Record):
    target: Address
    pair: Pair
    table: Table
    count: int = 3


class Longer(Source):
    last: int


@codelet
def copy_fields(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[...] = second, table[1], count, last."""
    target = word(parameters, Source.TARGET)
    store_i64(target, word(parameters, Source.PAIR + Pair.SECOND))
    store_i64(target + 8, load_i64(word(parameters, Longer.TABLE) + 8))
    store_i64(target + 16, word(parameters, Longer.COUNT))
    store_i64(target + 24, word(parameters, Longer.LAST))


@codelet
def add_fields(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Adds the first pair's fields, count and last of each of the records to target[number]."""
    for number in range(lo, hi):
        longer = Longer.read(parameters, number)
        pair = longer.pair
        store_i64(longer.target + 8 * number, pair.first + pair.second + longer.count + longer.last)


def test_numbers_follow_from_the_fields() -> None:
    assert (Source.TARGET, Source.PAIR, Source.TABLE, Source.COUNT, Source.WORDS) == (0, 1, 3, 4, 5)
    assert (Longer.PAIR, Longer.LAST, Longer.WORDS, Pair.WORDS) == (1, 5, 6, 2)


def test_kernels_read_what_was_encoded() -> None:
    found, table = np.zeros(4, np.int64), np.array([5, 6])
    made = block(Longer(target=found.ctypes.data, pair=Pair(first=1, second=2), table=table, last=7))
    copy_fields(made.words.ctypes.data, 0, 1, 0)
    assert found.tolist() == [2, 6, 3, 7]
    assert made.relocations == () and made.tables == ((Longer.TABLE, table),)


def test_kernels_read_whole_records() -> None:
    found = np.zeros(2, np.int64)
    records = [Longer(target=found.ctypes.data, pair=Pair(first=1, second=2), table=0, last=last) for last in (7, 8)]
    add_fields(block(records).words.ctypes.data, 0, 2, 0)
    assert found.tolist() == [13, 14]


def test_records_are_read_in_codelets_alone() -> None:
    with pytest.raises(InternalError, match="codelet"):
        Pair.read(0)


def test_an_address_that_is_not_known_is_a_relocation() -> None:
    place = object()
    made = block(Pair(first=1, second=2), [Source(target=place, pair=Pair(first=3, second=4), table=None)] * 2, (8, 9))
    assert made.words.tolist() == [1, 2, *[0, 3, 4, 0, 3] * 2, 8, 9]
    assert made.relocations == ((2, place), (7, place))


@pytest.mark.parametrize("values", [{"first": 1}, {"first": 1, "second": 2, "third": 3}])
def test_missing_and_unknown_fields_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(InternalError, match="first, second"):
        Pair(**values)


def test_tables_have_to_be_contiguous() -> None:
    with pytest.raises(InternalError, match="C-contiguous"):
        block(Source(target=0, pair=Pair(first=0, second=0), table=np.zeros((4, 4), np.int64)[:, 1]))
