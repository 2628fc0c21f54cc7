"""Batches made of requests: requests that share a batch, their order, and requests that leave or fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from engine.serving.batching import Batcher
from engine.serving.errors import RequestError
from engine.serving.manifest import Manifest, TensorManifest
from engine.serving.servable import Arrays, BatchFunction, Servable
from tests.interrupting import PATIENCE_SECONDS

BATCH = 4


class Recorder:
    """A program that adds one, notes its batches, and runs for some time."""

    def __init__(self, error: Exception | None = None) -> None:
        self.batches: list[list[float]] = []
        self.error = error

    def __call__(self, arrays: Arrays, timeout: float | None = None) -> Arrays:
        self.batches.append(arrays[0].ravel().tolist())
        if self.error is not None:
            raise self.error
        return [arrays[0] + 1]


def run(
    work: Callable[[Batcher], Awaitable[Any]],
    program: BatchFunction,
    window: float = 0.05,
    shape: tuple[int, ...] = (BATCH,),
    most_waiting: int = 100,
    is_brief: bool = False,
) -> Any:
    """Result of `work` with a batcher for a program."""
    tensors = (TensorManifest("x", shape, "float32"),)
    outputs = (TensorManifest("y", shape, "float32"),)
    servable = Servable("m", 1, Manifest("program", 1, tensors, outputs, tensors, outputs), program, is_brief)

    async def main() -> Any:
        batcher = Batcher(servable, window, most_waiting)
        batcher.start()
        try:
            return await work(batcher)
        finally:
            await batcher.stop()

    return asyncio.run(main())


def rows(*values: float) -> Arrays:
    return [np.array(values, np.float32)]


def test_requests_share_a_batch_and_the_last_row_fills_it() -> None:
    program = Recorder()

    async def work(batcher: Batcher) -> Any:
        return await asyncio.gather(batcher.predict(rows(1)), batcher.predict(rows(2, 3)))

    first, second = run(work, program)
    assert program.batches == [[1, 2, 3, 3]]
    np.testing.assert_array_equal(first[0], [2])
    np.testing.assert_array_equal(second[0], [3, 4])


def test_a_full_batch_does_not_wait() -> None:
    async def work(batcher: Batcher) -> Any:
        return await asyncio.wait_for(batcher.predict(rows(1, 2, 3, 4)), PATIENCE_SECONDS)

    program = Recorder()
    np.testing.assert_array_equal(run(work, program, window=10 * PATIENCE_SECONDS)[0], [2, 3, 4, 5])


def test_a_client_that_was_alone_does_not_wait_for_others_again() -> None:
    async def work(batcher: Batcher) -> Any:
        await batcher.predict(rows(1))
        batcher._window = 10 * PATIENCE_SECONDS
        await asyncio.wait_for(batcher.predict(rows(2)), PATIENCE_SECONDS)
        several = (batcher.predict(rows(n)) for n in (3, 4))
        await asyncio.wait_for(asyncio.gather(*several), PATIENCE_SECONDS)
        late = asyncio.ensure_future(batcher.predict(rows(5)))
        await asyncio.sleep(0.01)
        assert not late.done()  # two have waited before, so the batcher waits for another one
        await asyncio.wait_for(batcher.predict(rows(6)), PATIENCE_SECONDS)

    program = Recorder()
    run(work, program)
    assert program.batches == [[1, 1, 1, 1], [2, 2, 2, 2], [3, 4, 4, 4], [5, 6, 6, 6]]


def test_a_brief_program_runs_in_the_event_loop_and_others_between_its_batches() -> None:
    program, threads, between = Recorder(), set[int](), list[int]()

    def brief(arrays: Arrays, timeout: float | None = None) -> Arrays:
        threads.add(threading.get_ident())
        return program(arrays, timeout)

    async def work(batcher: Batcher) -> Any:
        async def other() -> None:
            while len(program.batches) < 5:
                between.append(len(program.batches))
                await asyncio.sleep(0)

        return (await asyncio.gather(batcher.predict(rows(*range(20))), other()))[0]

    [result] = run(work, brief, is_brief=True)
    np.testing.assert_array_equal(result, np.arange(20) + 1)
    assert threads == {threading.get_ident()}
    assert set(between) == set(range(5))


def test_many_rows_take_several_batches() -> None:
    program = Recorder()
    [result] = run(lambda batcher: batcher.predict(rows(*range(10))), program)
    np.testing.assert_array_equal(result, np.arange(10) + 1)
    assert program.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]


def test_inputs_without_a_batch_are_run_one_by_one() -> None:
    program = Recorder()

    async def work(batcher: Batcher) -> Any:
        return await asyncio.gather(*(batcher.predict([np.float32(value)]) for value in range(3)))

    results = run(work, program, shape=())
    assert [float(result[0]) for result in results] == [1, 2, 3] and len(program.batches) == 3


def test_who_has_gone_is_left_out() -> None:
    program = Recorder()

    async def work(batcher: Batcher) -> Any:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.predict(rows(7)), 0.01)
        return await batcher.predict(rows(1, 2, 3, 4))

    np.testing.assert_array_equal(run(work, program, window=10 * PATIENCE_SECONDS)[0], [2, 3, 4, 5])
    assert program.batches == [[1, 2, 3, 4]]


def test_a_failure_reaches_all_in_the_batch_and_ends_nothing() -> None:
    program = Recorder(ValueError("bad"))

    async def work(batcher: Batcher) -> Any:
        failed = await asyncio.gather(*(batcher.predict(rows(n)) for n in range(2)), return_exceptions=True)
        program.error = None
        return failed, await batcher.predict(rows(5))

    failed, result = run(work, program)
    assert all(isinstance(error, RequestError) and error.status == 500 for error in failed)
    np.testing.assert_array_equal(result[0], [6])


def test_too_many_are_turned_away_and_the_end_tells_those_who_wait() -> None:
    async def work(batcher: Batcher) -> Any:
        waiting = [asyncio.ensure_future(batcher.predict(rows(n))) for n in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="3 batches wait") as refused:
            await batcher.predict(rows(9))
        assert refused.value.status == 503
        return waiting

    async def outer(batcher: Batcher) -> Any:
        waiting = await work(batcher)
        await batcher.stop()
        return await asyncio.gather(*waiting, return_exceptions=True)

    errors = run(outer, Recorder(), window=10 * PATIENCE_SECONDS, most_waiting=3)
    assert [getattr(error, "status", None) for error in errors] == [503] * 3
