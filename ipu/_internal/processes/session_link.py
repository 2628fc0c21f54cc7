"""Signs of workers of a cluster: variables of their servers, which the others read over gRPC."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

import tensorflow as tf

from engine.errors import ProcessError
from ipu._internal.processes.cluster import Cluster
from ipu._internal.processes.signs import Sign
from ipu._internal.processes.watch import Link

tf1 = tf.compat.v1
NAME = "software_ipu_sign"
ANSWERS = 8
"""The number of calls of `answers` of which one stores a sign."""


class SessionLink(Link):
    """Stores the signs of this process in its server, and reads those of others, in a thread for each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._calls = cluster, 0
        self._store = self._callable(
            cluster.rank, lambda handle, text: tf.raw_ops.AssignVariableOp(resource=handle, value=text)
        )
        self._readers: dict[int, Callable[..., Any]] = {}
        self._read: SimpleQueue[tuple[int, Sign] | BaseException] = SimpleQueue()

    def ask(self, ranks: Iterable[int]) -> None:
        """Starts to read signs; a read of a process that is stopped never ends."""
        for rank in ranks:
            threading.Thread(target=self._ask, args=(rank,), daemon=True).start()

    def answers(self, own: Callable[[], Sign]) -> list[tuple[int, Sign]]:
        """The signs that have come, by rank; stores its own."""
        if self._calls % ANSWERS == 0:
            self._store(json.dumps(asdict(own())))
        self._calls += 1
        found = []
        while not self._read.empty():
            read = self._read.get()
            if isinstance(read, BaseException):
                raise read
            found.append(read)
        return found

    def end_all(self, error: ProcessError) -> None:
        """Does nothing, as a collective is in a thread of its own."""

    def _ask(self, rank: int) -> None:
        try:
            if rank not in self._readers:
                self._readers[rank] = self._callable(
                    rank, lambda handle, _: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)
                )
            sign = Sign(**json.loads(self._readers[rank]("")))
        except tf.errors.FailedPreconditionError:
            sign = Sign("", "", 0.0)
        except tf.errors.OpError:
            return
        except BaseException as error:  # raised in the thread that asks
            self._read.put(error)
            return
        self._read.put((rank, sign))

    def _callable(self, rank: int, operation: Callable[[tf.Tensor, tf.Tensor], Any]) -> Callable[[str], Any]:
        """A callable for an operation on the sign of a process."""
        config = self._cluster.configured(tf1.ConfigProto())
        task, index = self._cluster.tasks[rank]
        config.device_filters.append(f"/job:{task}/task:{index}")
        with tf.Graph().as_default() as graph, tf.device(f"/job:{task}/replica:0/task:{index}/device:CPU:0"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=NAME)
            text = tf1.placeholder(tf.string, [])
            result = operation(handle, text)
        session = tf1.Session(self._cluster.server.target, graph=graph, config=config)
        return session.make_callable(result, [text])
