"""A thread of a queue is killed at any of its waits: the program's next call raises the error, and never waits."""

from __future__ import annotations

import ast
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

from engine.ir.shape import Shape
from engine.runtime.request_stream import RequestStream
from engine.runtime.rings import InfeedRing, OutfeedRing

ROOT = Path(ipu.__file__).parent.parent
FILES = ["ipu/_internal/queues/feeding.py", "ipu/_internal/queues/dataset_elements.py"]
FILES += ["engine/runtime/outfeed_collector.py"]
LIMIT = 60.0


class Killed(BaseException):
    """An error that kills a thread; no handler of Exception stops it."""


def waits() -> list[tuple[str, str, int]]:
    """The lines at which threads of the files wait: file, function and line number."""
    lines = []
    for name in FILES:
        for function in ast.walk(ast.parse((ROOT / name).read_text())):
            for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("wait", "sleep"):
                    lines.append((name, function.name, node.lineno))
    return lines


WAITS = waits()


@pytest.fixture
def kill(monkeypatch) -> Iterator[Callable[[str, int], threading.Event]]:
    """Kills the first thread that waits at a line, and then sets the event."""
    killed, line = threading.Event(), []
    sleep, wait = time.sleep, threading.Event.wait

    def check() -> None:
        frame = sys._getframe(2)
        if line and not killed.is_set() and frame.f_lineno == line[1] and frame.f_code.co_filename.endswith(line[0]):
            killed.set()
            raise Killed

    def killing_sleep(seconds: float) -> None:
        check()
        sleep(seconds)

    def killing_wait(event: threading.Event, timeout: float | None = None) -> bool:
        check()
        return wait(event, timeout)

    monkeypatch.setattr(time, "sleep", killing_sleep)
    monkeypatch.setattr(threading.Event, "wait", killing_wait)
    yield lambda name, number: line.extend([name, number]) or killed
    line.clear()


def called(function: Callable[[], Any]) -> BaseException | None:
    """The error that a call raises, or None; fails if the call does not return."""
    raised: list[BaseException | None] = []

    def call() -> None:
        try:
            function()
            raised.append(None)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert raised, "the call waits for ever"
    return raised[0]


def program(strategy: Any, ahead: bool) -> Callable[[], Any]:
    """A program with an infeed, whose elements tf.data returns one by one, and an outfeed that fills up."""
    config = ipu.config.IPUConfig()
    config.optimizations.prefetch_data_streams = ahead
    config.configure_ipu_system()
    dataset = tf.data.Dataset.from_tensors(np.ones(4, np.float32)).map(tf.math.cosh).repeat()
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    wide = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total, row):
        enqueued = outfeed.enqueue(row), wide.enqueue(tf.zeros([1 << 17]) + row[0])
        with tf.control_dependencies(enqueued):
            return total + tf.reduce_sum(row)

    @tf.function(jit_compile=True)
    def loop():
        return ipu.loops.repeat(40, body, [0.0], infeed)

    infeed.initializer  # noqa: B018

    def run() -> Any:
        run.queues = infeed, outfeed, wide  # type: ignore[attr-defined]
        result = strategy.run(loop)
        outfeed.dequeue(), wide.dequeue()
        return result

    return run


@pytest.mark.parametrize("name, function, line", WAITS, ids=[f"{each[1]}-{k}" for k, each in enumerate(WAITS)])
def test_a_killed_thread_of_a_queue_ends_the_next_call(kill, name: str, function: str, line: int) -> None:
    text = (ROOT / name).read_text().splitlines()[line - 1].strip()
    ahead = function != "_wait_for_need"
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        run = program(strategy, ahead)
        assert called(run) is None
        killed = kill(name, line)
        end = time.monotonic() + LIMIT
        while (error := called(run)) is None and not killed.is_set() and time.monotonic() < end:
            time.sleep(0.01)
        assert killed.is_set(), text
        if "collector" in name and error is None:  # no program was running: the next one starts another thread
            assert called(run) is None
        else:
            error = error or called(run)
            assert isinstance(error, Killed), error
            assert text in "".join(traceback.format_exception(error))
            assert isinstance(called(run), Killed)
        assert called(program(strategy, ahead)) is None  # a program with its own queues is not harmed


class Closed:
    """A standard error that accepts nothing."""

    def write(self, text: str) -> None:
        raise Killed

    def isatty(self) -> bool:
        """Takes no progress bars."""
        return False

    def flush(self) -> None:
        """Does nothing."""


def test_a_printer_that_cannot_write_ends_the_program(monkeypatch) -> None:
    strategy = ipu.ipu_strategy.IPUStrategy()

    @tf.function(jit_compile=True)
    def printed(x):
        def body(x):
            with tf.control_dependencies([ipu.internal_ops.print_tensor(x)]):
                return x + 1

        return ipu.loops.repeat(100, body, [x])

    with strategy.scope():
        strategy.run(printed, [tf.constant(1.0)])
        monkeypatch.setattr(sys, "stderr", Closed())
        for _ in range(2):
            error = called(lambda: strategy.run(printed, [tf.constant(1.0)]))
            assert isinstance(error, Killed), error


@pytest.mark.parametrize("work, wait", [("fill_up", "wait"), ("fill_up", "sleep"), ("serve", "wait")])
def test_a_killed_thread_of_a_request_stream_ends_the_request(monkeypatch, work: str, wait: str) -> None:
    shapes = [Shape("f32", (2,))]
    infeed, outfeed = InfeedRing(shapes, 4), OutfeedRing(shapes, 4)
    stream = RequestStream(infeed, outfeed, 0.01)
    works = {"serve": lambda: stream.serve(lambda: outfeed.append(infeed.next_row())), "fill_up": stream.fill_up}
    threads = {name: threading.Thread(target=each, name=name, daemon=True) for name, each in works.items()}
    sleep, waiting = time.sleep, threading.Condition.wait

    def killing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait_or_die(*arguments: Any) -> Any:
            if name == wait and threading.current_thread() is threads[work]:
                raise Killed
            return original(*arguments)

        return wait_or_die

    monkeypatch.setattr(time, "sleep", killing("sleep", sleep))
    monkeypatch.setattr(threading.Condition, "wait", killing("wait", waiting))
    for thread in threads.values():
        thread.start()
    end = time.monotonic() + LIMIT
    while (error := called(lambda: stream.request([np.ones(2, np.float32)]))) is None and time.monotonic() < end:
        sleep(0.01)
    assert isinstance(error, Killed) and error.__traceback__ is not None
    assert isinstance(called(lambda: stream.request([np.ones(2, np.float32)])), Killed)


def test_a_killed_thread_of_callbacks_ends_fit(kill) -> None:
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(3,))])
        model.compile("sgd", "mse", steps_per_execution=50)
        model.set_asynchronous_callbacks(True)
        seen: list[int] = []
        callback = tf_keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
        x, y = np.ones((400, 3), np.float32), np.ones((400, 1), np.float32)

        def fit() -> None:
            model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[callback])

        fit()
        text = (ROOT / "keras_ext/callback_thread.py").read_text().splitlines()
        kill("keras_ext/callback_thread.py", 1 + next(k for k, each in enumerate(text) if "_ended.wait(" in each))
        with pytest.raises(Killed):
            for _ in range(100):
                fit()
        fit()
        assert model.optimizer.iterations.numpy() % 50 == 0
