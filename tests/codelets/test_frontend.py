"""Translation of a codelet's function: types, LLVM IR, one module of machine code."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numba
import numpy as np
import pytest

from engine.codelets.language.build import Codelet, Inner, codelet, inner, make
from engine.codelets.language.memory import load_f64, load_i64, pointer, store_f64, store_i64
from engine.codelets.language.statements import ir_of
from engine.errors import InternalError
from engine.machine_code.llvm_thread import SWITCH_INTERVAL, llvm_thread

SORTS = True


class Word(IntEnum):
    TARGET = 0
    VALUE = 1
    COUNT = 2


TABLE = np.array([[3, 1], [4, 1], [5, 9]])


@inner
def word(block: int, index: int) -> int:
    return load_i64(block + 8 * index)


@inner
def first_and_last(address: int, count: int) -> tuple[int, int]:
    values = pointer(address, "int64")
    return values[0], values[count - 1]


@codelet
def members(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Enumerations used as an index, in a comparison, in a loop and in a variable."""
    total = 0
    kind = Word.VALUE
    for index in range(Word.COUNT):
        if index == Word.VALUE or index == kind:
            total += 10 * word(parameters, index)
    store_i64(word(parameters, Word.TARGET), total + Word.COUNT)


@codelet
def tables(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """A constant array, memory as an array, and a tuple."""
    first, last = first_and_last(word(parameters, 1), word(parameters, 2))
    store_i64(word(parameters, 0), 100 * first + 10 * last + TABLE[lo, hi])


@codelet
def steps(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """A range with a step that may be 0: Python raises an exception there, in a codelet the range is empty."""
    for value in range(0, 7, word(parameters, 1)):
        store_i64(word(parameters, 0), value)


class Pair(NamedTuple):
    low: int
    high: int


@inner
def ordered(pair: Pair, grows: bool) -> Pair:
    """Named tuples, results of several statements, and constants known when compiled."""
    if SORTS and pair.low > pair.high:
        low, high = pair.high, pair.low
        return Pair(low, high)
    return pair if grows else Pair(pair.low - 1, pair.high)


def language(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """A function with everything that a pass over the source must translate; Python can run it, too."""
    low, high = ordered(Pair(lo, hi), lo % 2 == 0)
    total = 0
    for k in range(high, low, -3):
        if k % 5 == 0:
            continue
        if not k % 7 or (k > 90 and total > 0):
            break
        total += k // 4 - (-k // 4) + (k & 6 | 1) + (k >> 1 ^ k << 2)
        k = 0  # of no effect on the loop
    while 0 <= total < 1000:
        total += max(7, total // 2, high)
    both = low > 0 and high > 0 or low == high
    wide = 1 if both else 2
    total -= wide if low < 3 or total % 2 else min(low, -wide)
    store_i64(parameters, total + 10 * both)


def allocates(parameters: int, lo: int, hi: int, scratch: int) -> None:
    store_f64(load_i64(parameters), np.zeros(hi)[lo])


def result(of: Codelet, *arguments: int, lo: int = 0, hi: int = 1) -> int:
    target = np.zeros(1, np.int64)
    parameters = np.array([target.ctypes.data, *arguments], np.int64)
    of(parameters.ctypes.data, lo, hi, 0)
    return int(target[0])


def test_members_of_enumerations_are_numbers() -> None:
    assert result(members, 7, 0) == 72


def test_numbers_make_no_functions_of_their_own() -> None:
    texts, _ = ir_of(members.function)
    assert len(texts) == 1 and texts[0].count("define") == 2  # and `word` for all numbers it is called with


def test_arrays() -> None:
    values = np.array([2, 5, 7], np.int64)
    assert result(tables, values.ctypes.data, 3, lo=2, hi=1) == 279


def test_a_range_without_a_step_is_empty() -> None:
    assert result(steps, 3) == 6
    assert result(steps, 0) == 0


def test_what_needs_a_runtime_is_no_codelet() -> None:
    with pytest.raises((InternalError, numba.NumbaError)):
        _ = Codelet(allocates).address


def test_the_users_own_functions_are_not_touched() -> None:
    @numba.njit
    def doubled(values: np.ndarray) -> np.ndarray:
        return np.concatenate((values, 2 * values)) + max(1, 2)

    assert doubled(np.arange(2.0)).tolist() == [2, 3, 2, 4]
    assert result(members, 1, 0) == 12
    assert doubled(np.arange(3)).tolist() == [2, 3, 4, 2, 4, 6]


def storing(value: int) -> Callable[[int, int, int, int], None]:
    def store(parameters: int, lo: int, hi: int, scratch: int) -> None:
        store_i64(load_i64(parameters), value)

    return store


def test_several_at_once() -> None:
    made = [Codelet(storing(value)) for value in (5, 6, 5)]
    assert not made[0].is_made
    make(made)
    assert [result(each) for each in made] == [5, 6, 5]
    assert all(each.is_made for each in made)


def test_threads_make_one_of_each() -> None:
    made = [Codelet(storing(value)) for value in range(20, 24)]
    threads = [threading.Thread(target=make, args=(made[k % 2 :],)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [result(each) for each in made] == [20, 21, 22, 23]


@pytest.mark.parametrize("bounds", [(0, 9), (9, 0), (3, 3), (-7, 80), (5, 96)])
def test_the_language_is_pythons(bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    target = np.zeros(1, np.int64)
    Codelet(language)(target.ctypes.data, *bounds, 0)
    found: list[int] = []
    monkeypatch.setitem(globals(), "store_i64", lambda address, value: found.append(value))
    monkeypatch.setitem(globals(), "ordered", ordered.function)
    language(0, *bounds, 0)
    assert found == target.tolist()


def refused(parameters: int, lo: int, hi: int, scratch: int) -> None:
    value = lo
    value = value / 3
    store_f64(parameters, value)


def test_a_variable_has_one_type() -> None:
    with pytest.raises(InternalError, match="values of one type in a variable. Received: int64 and float64"):
        _ = Codelet(refused).address


START, LABELS = np.int64(0), ("low", "high")


@codelet
def counts_from_a_scalar(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """A scalar of NumPy is a number: a variable that starts as one can change."""
    x = START
    while x < hi:
        x += 1
    store_i64(word(parameters, 0), x)


def test_scalars_of_numpy_are_numbers() -> None:
    assert result(counts_from_a_scalar, hi=5) == 5


@inner
def first_multiple(of: int, start: int) -> int:
    while True:
        if start % of == 0:
            return start
        start += 1


@inner
def first_that_breaks(of: int, start: int) -> int:
    while True:
        if start % of == 0:
            break
        start += 1
    return start


@codelet
def endless(parameters: int, lo: int, hi: int, scratch: int) -> None:
    store_i64(word(parameters, 0), 100 * first_multiple(hi, lo) + first_that_breaks(hi, lo))


def test_loops_that_end_by_return_or_break() -> None:
    assert result(endless, lo=8, hi=5) == 1010


def text_by_a_condition(parameters: int, lo: int, hi: int, scratch: int) -> None:
    kind = "int32" if lo > 3 else "int64"
    store_i64(parameters, pointer(parameters, kind)[0])


def text_then_another(parameters: int, lo: int, hi: int, scratch: int) -> None:
    kind = LABELS[0]
    if lo > 3:
        kind = LABELS[1]
    store_i64(parameters, 1 if kind == "high" else 0)


def tuples_of_two_lengths(parameters: int, lo: int, hi: int, scratch: int) -> None:
    both = (lo, hi)
    if lo > 3:
        both = (lo, hi, lo)
    store_i64(parameters, max(*both))


def number_or_boolean(parameters: int, lo: int, hi: int, scratch: int) -> None:
    store_i64(parameters, 4 or hi > lo)


def boolean_and_number(parameters: int, lo: int, hi: int, scratch: int) -> None:
    store_i64(parameters, hi > lo and 4)


def loop_with_else(parameters: int, lo: int, hi: int, scratch: int) -> None:
    while lo < hi:
        lo += 1
    else:
        store_i64(parameters, lo)


@inner
def nothing_or_number(lo: int):  # type: ignore[no-untyped-def]
    if lo > 3:
        return lo
    return None


def result_of_two_forms(parameters: int, lo: int, hi: int, scratch: int) -> None:
    store_i64(parameters, nothing_or_number(lo))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (text_by_a_condition, "one constant"),
        (text_then_another, "one constant"),
        (tuples_of_two_lengths, "tuples of one length"),
        (number_or_boolean, "Received: 4 or hi > lo"),
        (boolean_and_number, "Received: hi > lo and 4"),
        (loop_with_else, "Received: while lo < hi"),
        (result_of_two_forms, "all returns of nothing_or_number to give one type"),
    ],
)
def test_what_control_flow_decides_is_no_constant(function: Callable[[int, int, int, int], None], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        ir_of(function)


def test_an_error_leaves_the_others_to_be_made() -> None:
    good = Codelet(storing(31))
    with pytest.raises((InternalError, numba.NumbaError)):
        make([good, Codelet(allocates)])
    assert result(good) == 31


def test_python_switches_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    with llvm_thread() as outer, llvm_thread():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL)
        assert outer.submit(load_f64.__repr__).result() == "<intrinsic load>"
    assert sys.getswitchinterval() == before


def test_what_may_be_called_says_what_it_is() -> None:
    assert isinstance(word, Inner) and repr(word) == "Inner(word)"
