"""The thread of an executor is killed: the call that waits for it raises the error, and the next one works."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import CancelledError
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from engine import single_thread
from engine.codelets.language.build import Codelet, make
from engine.codelets.language.memory import load_i64, store_i64
from engine.machine_code.llvm_thread import llvm_thread
from engine.serving.batching import Batcher
from engine.serving.errors import RequestError
from engine.serving.manifest import Manifest, TensorManifest
from engine.serving.servable import Servable
from engine.single_thread import SingleThread

LIMIT = 60.0


class Killed(BaseException):
    """An error that kills a thread; no handler of Exception stops it."""


class Deadly(SimpleQueue[Any]):
    """A queue that kills a thread that waits for an element, after `elements`; None kills none."""

    elements: int | None = 0
    taken = 0

    def get(self, *arguments: Any) -> Any:
        if self.elements is not None and self.taken >= self.elements:
            raise Killed
        self.taken += 1
        return super().get(*arguments)


@pytest.fixture(params=[0, 1, 2])
def deadly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Deadly]:
    """Kills the threads of all executors as they wait for their first, second or third call."""
    kind = type("Deadly", (Deadly,), {"elements": request.param})
    monkeypatch.setattr(single_thread, "SimpleQueue", kind)
    return kind


def storing(value: int) -> Any:
    def store(parameters: int, lo: int, hi: int, scratch: int) -> None:
        store_i64(load_i64(parameters), value)

    return store


def test_a_killed_llvm_thread_ends_the_compilation(
    deadly: type[Deadly], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # without objects of an earlier run
    number = 7001 + 3 * (deadly.elements or 0)
    codelets = [Codelet(storing(value)) for value in range(number, number + 3)]
    with pytest.raises(Killed) as raised:
        make(codelets)
    assert raised.value.__traceback__ is not None
    deadly.elements = None
    make(codelets)
    target = np.zeros(1, np.int64)
    codelets[2](np.array([target.ctypes.data], np.int64).ctypes.data, 0, 1, 0)
    assert target[0] == number + 2


def test_a_killed_thread_of_a_server_ends_the_request(deadly: type[Deadly]) -> None:
    tensors = (TensorManifest("x", (2,), "float32"),)
    manifest = Manifest("program", 1, tensors, tensors, tensors, tensors)
    servable = Servable("m", 1, manifest, lambda arrays, timeout=None: [arrays[0] + 1], False)

    async def main() -> list[Any]:
        batcher = Batcher(servable, 0.0, 100)
        batcher.start()
        answers: list[Any] = []
        for _ in range(6):
            try:
                answer = await asyncio.wait_for(batcher.predict([np.ones(2, np.float32)]), LIMIT)
                answers.append(answer[0].tolist())
            except RequestError as error:
                answers.append(str(error))
        await batcher.stop()
        return answers

    answers = asyncio.run(main())
    killed = ["Killed" in answer for answer in answers]
    assert killed == [number % (deadly.elements + 1) == deadly.elements for number in range(6)]  # type: ignore[operator]
    assert all(answer == [2.0, 2.0] for answer, is_killed in zip(answers, killed, strict=True) if not is_killed)


def test_a_program_that_ends_with_any_error_fails_its_request_alone() -> None:
    tensors = (TensorManifest("x", (2,), "float32"),)
    manifest = Manifest("program", 1, tensors, tensors, tensors, tensors)
    errors: list[type[BaseException]] = [Killed, ValueError]

    def program(arrays: Any, timeout: float | None = None) -> Any:
        if errors:
            raise errors.pop(0)
        return arrays

    async def main() -> None:
        batcher = Batcher(Servable("m", 1, manifest, program, False), 0.0, 100)
        batcher.start()
        for name in ("Killed", "ValueError"):
            with pytest.raises(RequestError, match=name):
                await asyncio.wait_for(batcher.predict([np.ones(2, np.float32)]), LIMIT)
        assert (await batcher.predict([np.ones(2, np.float32)]))[0].sum() == 2
        await batcher.stop()

    asyncio.run(main())


def test_calls_have_results_in_order_until_the_end() -> None:
    seen: list[int] = []
    go = threading.Event()
    with SingleThread("numbers") as thread:
        first = thread.submit(go.wait, LIMIT)
        rest = [thread.submit(lambda number=number: seen.append(number) or number) for number in range(5)]
        assert rest[3].cancel()
        go.set()
    assert first.result() and [each.result() for each in rest if not each.cancelled()] == seen == [0, 1, 2, 4]
    with pytest.raises(RuntimeError, match="one after it"):
        thread.submit(seen.clear)
    with pytest.raises(CancelledError):
        rest[3].result()


def test_calls_that_have_not_begun_are_cancelled() -> None:
    thread, began, go = SingleThread("numbers"), threading.Event(), threading.Event()
    first, second = thread.submit(lambda: began.set() or go.wait(LIMIT)), thread.submit(int)
    assert began.wait(LIMIT)
    thread.shutdown(wait=False, cancel_futures=True)
    go.set()
    assert first.result(LIMIT) and second.cancelled()


def test_a_thread_that_waits_keeps_nothing_alive() -> None:
    with SingleThread("numbers") as thread:
        result = np.ones(3)
        alive = weakref.ref(result)
        assert thread.submit(result.sum).result(LIMIT) == 3
        thread.submit(int).result(LIMIT)
        del result
        gc.collect()
        assert alive() is None


def test_the_llvm_thread_ends_with_its_block() -> None:
    with llvm_thread() as pool:
        name = pool.submit(lambda: threading.current_thread().name).result(LIMIT)
    assert name == "LLVM" and name not in [each.name for each in threading.enumerate()]
