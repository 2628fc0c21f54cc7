"""Collectives by TensorFlow's operations, over gRPC between the servers of a cluster."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_collective_ops, gen_control_flow_ops

from engine.errors import ProcessError
from ipu._internal.processes.active import active
from ipu._internal.processes.cluster import Cluster, cluster_of
from ipu._internal.processes.failures import different_calls, failed_before, no_answer
from ipu._internal.processes.session_link import SessionLink
from ipu._internal.processes.time_limits import COLLECTIVE, CONNECTION, time_limit
from ipu._internal.processes.transport import Operation, SingleProcess, Transport, digest_of
from ipu._internal.processes.versions import check_versions
from ipu._internal.processes.watch import TICK, CollectiveWatch

tf1 = tf.compat.v1
MERGES = {"sum": "Add", "min": "Min", "max": "Max", "product": "Mul"}
REDUCED = ("float32", "float64", "int32", "int64")
GROUP, TEXT, FIRST = 0x1B0, 1, 16
"""TensorFlow's keys: of the group, of the instance for descriptions of calls, and the first of other instances."""
TEXT_BYTES = 512
"""The length of descriptions; longer ones end with a digest."""
ENDING = 2.0
"""Seconds that a process which has failed may still accept connections."""


class CollectiveOps(Transport):
    """The workers of a cluster. One run of a session compares the calls of all processes and executes them.

    The first collective starts this process' server, unless the program has, and waits for all workers.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.rank, self.size = cluster.rank, len(cluster.tasks)
        self.local_rank, self.local_size = cluster.local_ranks.index(self.rank), len(cluster.local_ranks)
        self._limit = time_limit(COLLECTIVE) + 2 * ENDING  # the watch has the same limit, and says more
        self._session: Any = None
        self._failed = False
        self._called = ""
        self._runnable = cache(self._build)

    def barrier(self, name: str = "") -> None:
        """Returns once all processes have called it."""
        self.all_gather(np.zeros(1, np.int32), f"barrier {name}")

    def close(self) -> None:
        """Waits for all processes; those in a collective raise ProcessError. Does nothing after a failure."""
        if self._session is not None and not self._failed:
            with contextlib.suppress(ProcessError):
                self.barrier("at the end of the program")
        if self.watch is not None:
            self.watch.close()

    def _agree(self, call: str) -> None:
        """Keeps the description, which is compared beside the operation."""
        if self._failed:
            raise failed_before(call)
        self._called = call
        if self._session is None:
            self._connect()

    def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        if array.dtype.name not in REDUCED or not array.size:
            return self._reduced_by_blocks(array, operation)
        return self._collective(operation, array)

    def _all_to_all(self, blocks: np.ndarray) -> np.ndarray:
        return self._of_words("all_to_all", blocks)

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return self._of_words("all_gather", array[None])

    def _broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        return self._of_words(f"broadcast {root}", array[None])[0]

    def _of_words(self, kind: str, rows: np.ndarray) -> np.ndarray:
        """A collective that moves rows of any type, as 32-bit integers."""
        row_bytes = rows[0].nbytes
        words = np.zeros((len(rows), max(1, -(-row_bytes // 4))), np.int32)
        words.view(np.uint8)[:, :row_bytes] = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
        result = np.ascontiguousarray(self._collective(kind, words).view(np.uint8)[:, :row_bytes])
        return result.view(rows.dtype).reshape(len(result), *rows.shape[1:])

    def _collective(self, kind: str, array: np.ndarray) -> np.ndarray:
        """The result of an operation, once all processes have called the same one."""
        instance = zlib.crc32(f"{kind} {array.dtype}{array.shape}".encode()) % (2**31 - FIRST) + FIRST
        try:
            result, texts = self._run(
                self._runnable(kind, array.dtype), self._limit, array, instance, _row(self._called)
            )
        except tf.errors.OpError as error:
            raise self._explained(error) from error
        calls = _texts(texts)
        if len(set(calls)) > 1:
            self._failed = True
            raise different_calls(calls)
        return result

    def _connect(self) -> None:
        """Starts the server and waits for the others; their versions must be the same."""
        target = self.cluster.server.target
        self.cluster.connect()
        config = self.cluster.configured(tf1.ConfigProto())
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # a graph of a few operations
        self._session = tf1.Session(target, graph=tf.Graph(), config=config)
        try:
            check_versions(self._gathered_objects, self.rank)
        except tf.errors.OpError as error:
            raise self._explained(error) from error
        self.watch = CollectiveWatch(self.rank, self.size, SessionLink(self.cluster), {}, unlimited="")
        self.watch.begin(self._called)
        shown = sys.excepthook

        def hook(*error: Any) -> None:  # pragma: no cover - ends the process
            self._failed = True  # the others learn at once that this process has ended
            shown(*error)

        sys.excepthook = hook

    def _gathered_objects(self, own: dict[str, str]) -> list[dict[str, str]]:
        texts = self._run(self._runnable("text", None), time_limit(CONNECTION), _row(json.dumps(own)))
        return [json.loads(each) for each in _texts(texts)]

    def _explained(self, error: Exception) -> ProcessError:
        self._failed = True
        is_late = isinstance(error, tf.errors.DeadlineExceededError)
        end = time.monotonic() + (0 if is_late else ENDING)
        while not (ended := self.cluster.unreachable()) and time.monotonic() < end:
            time.sleep(0.1)
        if is_late and not ended:
            return self._late()
        return ProcessError(
            f"Expected all {self.size} processes at {self._called or 'the start'}. Received: "
            f"{'; '.join(ended) or type(error).__name__}: another process has ended or failed. Look for its error, and "
            f"restart the run."
        )

    def _late(self) -> ProcessError:
        call, variable = ("the start", CONNECTION) if self.watch is None else (self._called, COLLECTIVE)
        return no_answer(self.size, time_limit(variable), call, "no answer from another one", variable)

    def _run(self, runnable: Callable[..., Any], limit: float, *feeds: Any) -> Any:
        """Runs the session in a thread, so that the calling thread receives signals and stops waiting in any case."""
        end = time.monotonic() + limit + ENDING
        options = tf1.RunOptions(timeout_in_ms=int(limit * 1000))
        options.experimental.collective_graph_key = GROUP
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(runnable(*feeds, options=options))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    return future.result(TICK)
                if self.watch is not None and self.watch.error is not None:
                    raise self.watch.error
                if self.watch is None and time.monotonic() > end:
                    raise self._late()
        except (KeyboardInterrupt, ProcessError):
            self._failed = True
            raise

    def _build(self, kind: str, dtype: Any) -> Callable[..., Any]:
        """A callable for an operation, of an array, its instance and a description; returns all descriptions, too."""
        session = self._session
        with session.graph.as_default(), tf.device(self.cluster.device):
            text = tf1.placeholder(tf.int32, [1, TEXT_BYTES // 4])
            texts = self._operation("all_gather", text, tf.constant(TEXT))
            if kind == "text":
                return session.make_callable(texts, [text], accept_options=True)
            x, instance = tf1.placeholder(dtype), tf1.placeholder(tf.int32, [])
            # Calls that differ are never executed: they would wait for each other.
            refused, accepted = gen_control_flow_ops.switch(x, tf.reduce_all(tf.equal(texts, text)))
            result = gen_control_flow_ops.merge([refused, self._operation(kind, accepted, instance)])[0]
            return session.make_callable([result, texts], [x, instance, text], accept_options=True)

    def _operation(self, kind: str, x: tf.Tensor, instance: tf.Tensor) -> tf.Tensor:
        group = (self.size, GROUP, instance)
        if kind in MERGES:
            return gen_collective_ops.collective_reduce_v2(x, *group, [], merge_op=MERGES[kind], final_op="Id")
        if kind == "all_to_all":
            return gen_collective_ops.collective_all_to_all_v2(x, *group, [])
        if not kind.startswith("broadcast"):
            return gen_collective_ops.collective_gather_v2(x, *group, [])
        if kind == f"broadcast {self.rank}":
            return gen_collective_ops.collective_bcast_send_v2(x, *group)
        return gen_collective_ops.collective_bcast_recv_v2(*group, tf.shape(x), T=x.dtype)


def transport_of(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> Transport:
    """The transport of a resolver's cluster, or that of one process alone. Raises as `cluster_of`."""
    cluster = cluster_of(resolver)
    current = active()
    if isinstance(current, CollectiveOps) and current.cluster == cluster:
        return current
    return SingleProcess() if cluster is None else CollectiveOps(cluster)


def _row(text: str) -> np.ndarray:
    code = text.encode()
    if len(code) > TEXT_BYTES:
        code = code[: TEXT_BYTES - 16] + f"{digest_of(text):16x}".encode()
    return np.frombuffer(code.ljust(TEXT_BYTES), np.int32)[None]


def _texts(rows: np.ndarray) -> list[str]:
    return [row.tobytes().decode(errors="ignore").rstrip() for row in rows]
