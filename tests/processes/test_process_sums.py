"""Sums over the processes of one machine, here threads, which a codelet computes in shared memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.codelets.threads.process_sum import Header, Rows
from engine.compile import compile_module
from engine.errors import ProcessError
from engine.ir.builder import Builder
from engine.runtime.process_sums import SharedRows
from ipu._internal.compiler.buckets import Buckets
from ipu._internal.processes.transport import digest_of
from tests.interrupting import PATIENCE_SECONDS
from tests.partition.test_repeat import buffers
from tests.processes.threads import ThreadTransport, in_threads

HALF_BYTES, SHAPES = 4096, ((3, 5), (), (0,), (7,))


class Sharing(ThreadTransport):
    """A transport of threads with rows of shared memory; `continued` counts sums that a codelet left to the host."""

    def __init__(self, other: ThreadTransport, memory: np.ndarray) -> None:
        super().__init__(other.rank, other.size, other._table, other._barrier)
        self.shared, self.continued = SharedRows(memory, other.rank), 0

    def sum_in_shared_memory(self, arrays: list[np.ndarray], call: str) -> np.ndarray:
        self.continued += 1
        self.shared.publish(digest_of(call), arrays)
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.shared.all_published():
            assert time.monotonic() < end
            time.sleep(1e-3)
        if not self.shared.is_same(digest_of(call)):
            raise ProcessError(call)
        total = self.shared.sums(sum(array.size for array in arrays))
        self.shared.complete()
        return total


def summed(transport: ThreadTransport, arrays: list[np.ndarray], pauses: int, name: str = "x") -> list[np.ndarray]:
    """Sums of the arrays, taken three times over: of the arrays, of their sums, and of those sums."""
    b = Builder("sums")
    function = Buckets(transport, name).all_reduce_function()
    transport.shared.words[Rows.PAUSES] = pauses
    values, token = [b.parameter(f"f{8 * array.itemsize}", array.shape) for array in arrays], b.constant(0, "s32")
    for _ in range(3):
        call = b.host_function(function, values, [value.array_shape for value in values], token)
        token = b.get_tuple_element(call, len(arrays))
        values = [b.get_tuple_element(call, k) for k in range(len(arrays))]
    module = b.module(b.tuple(*values), {k: k for k in range(len(arrays))})
    held = buffers(arrays)
    compile_module(module, ["variable"] * len(arrays), {}).run(1, [], held)
    return [each.read() for each in held]


def on_processes(
    count: int, pauses: list[int], dtype: type = np.float32, names: str = "xx", fails: bool = False
) -> list[Sharing]:
    """The transports of processes that have summed random values."""
    memory = np.zeros((count, 8 * Header.WORDS + 2 * HALF_BYTES), np.uint8)
    values = [np.random.default_rng(k).normal(size=(count, *shape)).astype(dtype) for k, shape in enumerate(SHAPES)]
    values[1] *= dtype(1e-40)  # becomes denormal
    expected = []
    for value in values:
        for _ in range(3):
            total = value[0]
            for k in range(1, count):
                total = total + value[k]
            value = np.stack([total] * count)
        expected.append(total)

    def work(transport: ThreadTransport) -> Sharing:
        sharing = Sharing(transport, memory)
        name, words = names[transport.rank % 2], sharing.shared.words
        if fails:  # while the program begins a call of another thread
            begun = words[Rows.BEGUN]
            sharing.shared.leave_to_host()
            words[Rows.BEGUN] = begun + 1
            words[Rows.ENDED] += 1
        found = summed(sharing, [value[sharing.rank] for value in values], pauses[sharing.rank], name)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        return sharing

    return in_threads(count, work)


def test_codelets_sum_in_order_of_ranks() -> None:
    for transport in on_processes(3, [1 << 40] * 3):
        assert transport.continued == 0 and not transport.calls
        assert transport.bytes == 3 * 4 * (15 + 1 + 7) and transport.seconds > 0


def test_the_host_continues_where_others_are_late() -> None:
    assert sum(each.continued for each in on_processes(2, [0, 0])) >= 3  # the last process to come continues no call


def test_no_codelet_makes_a_call_after_one_that_has_failed() -> None:
    with np.errstate(over="raise"):
        assert [each.continued for each in on_processes(2, [1 << 40] * 2, fails=True)] == [3, 3]


def test_other_types_are_summed_by_the_transport() -> None:
    for transport in on_processes(2, [1 << 40] * 2, np.float64):
        assert len(transport.calls) == 3 and transport.continued == 0


def test_other_programs_are_not_summed() -> None:
    with pytest.raises(ProcessError, match=r"all_reduce in place of float32\[23\] [xy]"):
        on_processes(2, [1 << 40] * 2, names="xy")
