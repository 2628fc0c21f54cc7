"""The cluster of TF_CONFIG or of a cluster resolver: its workers in the order of ranks, and this process' server."""

from __future__ import annotations

import gc
import socket
import time
from dataclasses import dataclass
from functools import cached_property

import tensorflow as tf
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.training import server_lib

from engine.errors import ConfigurationError, ProcessError
from ipu._internal.processes.time_limits import CONNECTION, time_limit

THREADS = 16
"""Least number of threads of a server: programs, queues and initial values occupy one each until others have one."""


@dataclass(frozen=True)
class Cluster:
    """The workers that train: `tasks` and their `addresses` by rank, the chief's first, and this process' rank."""

    spec: tf.train.ClusterSpec
    tasks: tuple[tuple[str, int], ...]
    addresses: tuple[str, ...]
    rank: int

    @property
    def device(self) -> str:
        """The name of this process' CPU in the cluster."""
        return _device(self.tasks[self.rank]) + "/device:CPU:0"

    @property
    def local_ranks(self) -> list[int]:
        """The ranks of the workers on this machine, by the names in their addresses."""
        hosts = [each.rpartition(":")[0] for each in self.addresses]
        return [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]

    def configured(self, config: tf.compat.v1.ConfigProto) -> tf.compat.v1.ConfigProto:
        """A copy of a configuration, for collectives of this process' server and its sessions."""
        changed = tf.compat.v1.ConfigProto()
        changed.CopyFrom(config)
        task, index = self.tasks[self.rank]
        del changed.device_filters[:]
        changed.device_filters.append(f"/job:{task}/task:{index}")
        changed.experimental.collective_group_leader = _device(self.tasks[0])
        changed.inter_op_parallelism_threads = max(changed.inter_op_parallelism_threads, THREADS)
        return changed

    @cached_property
    def server(self) -> tf.distribute.Server:
        """The server of this process: the program's own, if it has started one for this task, or a new one.

        Raises ConfigurationError where another process has taken the task's port.
        """
        task, index = self.tasks[self.rank]
        for each in gc.get_objects():
            # TensorFlow would start a second server on the same port, which takes some of the connections.
            if type(each) is server_lib.Server and _is_task(each.server_def, task, index):
                return each
        port = int(self.addresses[self.rank].rpartition(":")[2])
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind(("", port))
            except OSError as error:
                raise ConfigurationError(
                    f"Expected port {port} of {task} {index} to be free. Received: {error.strerror}. Give each process "
                    f"an index of its own in TF_CONFIG, or end the process that uses the port."
                ) from error
        config = self.configured(tf.compat.v1.ConfigProto())
        return tf.distribute.Server(self.spec, job_name=task, task_index=index, config=config)

    def connect(self) -> None:
        """Waits until all workers accept connections; raises ProcessError after the time limit."""
        limit = time_limit(CONNECTION)
        end = time.monotonic() + limit
        while failures := self.unreachable():
            if time.monotonic() > end:
                raise ProcessError(
                    f"Expected all {len(self.tasks)} workers of the cluster to start within {limit:g} seconds. "
                    f"Received: no answer from {'; '.join(failures)}. Start the workers, or correct the addresses in "
                    f"TF_CONFIG; {CONNECTION} in the environment sets another limit."
                )
            time.sleep(0.05)

    def unreachable(self) -> list[str]:
        """The workers that accept no connection, each with the reason."""
        found = []
        for (task, index), address in zip(self.tasks, self.addresses, strict=True):
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=2).close()
            except OSError as error:
                found.append(f"{task} {index} at {address} ({error.strerror or error})")
        return found


def cluster_of(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> Cluster | None:
    """The cluster of a resolver, as this process sees it; None for a process that trains alone, as an evaluator does.

    Raises ConfigurationError for a task that the cluster does not have, and for parameter servers.
    """
    spec = multi_worker_util.normalize_cluster_spec(resolver.cluster_spec())
    jobs = spec.as_dict()
    if "ps" in jobs:
        raise ConfigurationError(
            f"Expected a cluster of workers, with or without a chief. Received: {sorted(jobs)}. Remove 'ps': workers "
            f"reduce gradients between each other."
        )
    tasks = [(job, index) for job in ("chief", "worker") if job in jobs for index in spec.task_indices(job)]
    own = resolver.task_type, resolver.task_id
    if not tasks or own[0] == "evaluator":
        return None
    if own not in tasks:
        raise ConfigurationError(
            f"Expected a task of the cluster, one of {tasks}. Received: {own}. Correct 'task' in TF_CONFIG, or "
            f"task_type and task_id of the cluster resolver."
        )
    addresses = [spec.task_address(job, index) for job, index in tasks]
    for address in addresses:
        if not address.rpartition(":")[2].isdigit():
            raise ConfigurationError(
                f"Expected addresses of the form host:port. Received: {address!r}. Nearest: '{address}:2222'."
            )
    return Cluster(spec, tuple(tasks), tuple(addresses), tasks.index(own)) if len(tasks) > 1 else None


def _device(task: tuple[str, int]) -> str:
    return f"/job:{task[0]}/replica:0/task:{task[1]}"


def _is_task(definition: object, task: str, index: int) -> bool:
    return (definition.job_name, definition.task_index) == (task, index)  # type: ignore[attr-defined]
