"""TensorFlow's collectives between workers of TF_CONFIG: results, and errors within their time limits."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from engine.errors import ConfigurationError, ProcessError
from ipu._internal.processes.cluster import cluster_of
from ipu._internal.processes.collective_ops import CollectiveOps, transport_of
from ipu._internal.processes.settings import BUCKET_BYTES
from ipu._internal.processes.time_limits import COLLECTIVE, CONNECTION, SILENCE
from ipu._internal.processes.transport import SingleProcess
from ipu._internal.processes.versions import check_versions, versions
from ipu.ipu_strategy import IPUStrategy
from tests import forking

TRAININGS = ["graph", "functions", "host", "fit", "fit", "estimator"]
PROGRAMS = Path(__file__).parent / "programs"


def addresses(count: int) -> list[str]:
    """Addresses of free ports of this machine."""
    with_ports = [socket.create_server(("localhost", 0)) for _ in range(count)]
    found = [f"localhost:{each.getsockname()[1]}" for each in with_ports]
    for each in with_ports:
        each.close()
    return found


def run_workers(program: str, *arguments: str, count: int = 2, **variables: str) -> list[tuple[int | None, str]]:
    """The exit status and the output of each worker of a program."""
    workers = addresses(count)
    started = []
    for index in range(count):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(task), CONNECTION: "120", COLLECTIVE: "120", **variables}
        started.append(forking.Fork(forking.program, PROGRAMS / program, *arguments, **environment))
    return [each.end() for each in started]


def resolver(spec: dict[str, list[str]], task: str | None = "worker", index: int = 0) -> Any:
    """A resolver of a cluster, seen from one of its tasks."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec), task_type=task, task_id=index
    )


def test_two_workers_call_collectives_and_differences_are_errors() -> None:
    (status, first), (killed, second) = run_workers("collectives.py", "both")
    assert (status, killed) == (0, -9), first + second
    for output in (first, second):
        assert "collectives agree" in output
        assert (
            "ProcessError: Expected all processes to call the same collectives in the same order. Received: "
            "all_reduce sum of float32[3] gradients in process 0; all_reduce sum of float32[4] gradients in process 1."
        ) in output
        assert "ProcessError: Expected processes that call the same" in output
    assert (
        "killed, which is seen at once: True: Expected all 2 processes at all_reduce sum of float64[3]. Received: "
        "worker 1" in first
    )


def test_two_workers_train_in_graphs_functions_fit_and_estimators(tmp_path: Path) -> None:
    for status, output in run_workers("workers.py", str(tmp_path), **{BUCKET_BYTES: "8"}):
        agreed = [line for line in output.splitlines() if line.endswith("agrees") or line.endswith("agree")]
        assert status == 0 and [line.split()[0] for line in agreed] == TRAININGS, output


@pytest.mark.explore
def test_sums_and_training_have_the_same_bits_in_each_run() -> None:
    runs = [run_workers("sums.py", count=3, **{BUCKET_BYTES: "256"}) for _ in range(2)]
    lines = [line for each in runs for _, output in each for line in output.splitlines()]
    digests = [line for line in lines if line.startswith("digest")]
    assert len(digests) == 6 and len(set(digests)) == 1


@pytest.mark.explore
def test_a_slow_worker_is_named_and_a_stopped_one_is_an_error() -> None:
    (status, first), (killed, second) = run_workers("failures.py", "is slow, then stopped", **{SILENCE: "9"})
    assert (status, killed) == (1, -9), first + second
    assert re.search("slow one for 3 s: process 1 (computes|does not use the processor), at .*failures.py", first), (
        first
    )
    assert "gradients. Received: process 1 has given no sign of life for 9 s" in first
    assert "slow processes are no error" in second


@pytest.mark.explore
def test_backups_of_workers_continue_with_as_many_and_with_one(tmp_path: Path) -> None:
    (status, first), (killed, second) = run_workers("backups.py", str(tmp_path))
    assert (status, killed) == (0, -9), first + second
    for output in (first, second):
        assert "epochs after an error: [2, 3] False" in output
        assert "epochs of fits in turn: [4, 4, 4, 4]" in output
    assert "ProcessError: Expected all 2 processes at all_reduce in place of float32[" in first
    assert "Received: worker 1 at localhost" in first and "restart the run. True 3.0" in first
    with IPUStrategy().scope():
        model = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(1)])
        model.compile(tf_keras.optimizers.SGD(0.01), "mse", steps_per_execution=2)
        backup = tf_keras.callbacks.BackupAndRestore(tmp_path / "tf_keras")
        history = model.fit(np.ones((8, 3)), np.ones(8), batch_size=4, epochs=4, verbose=0, callbacks=[backup])
    assert history.epoch == [2, 3]


def test_a_missing_worker_and_a_wrong_address_are_errors_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONNECTION, "0.2")
    own, missing = addresses(2)
    with socket.create_server(("localhost", 0)) as silent:
        transport = CollectiveOps(cluster_of(resolver({"worker": [own, f"localhost:{silent.getsockname()[1]}"]})))
        with pytest.raises(ProcessError, match=rf"within 0.2 seconds at the start.* alone; {CONNECTION} in"):
            transport.barrier()
    for address in (missing, "no.such.host.invalid:2222"):
        transport = CollectiveOps(cluster_of(resolver({"worker": [own, address]})))
        with pytest.raises(ProcessError, match=f"no answer from worker 1 at {address}"):
            transport.all_reduce(np.ones(3))
    with pytest.raises(ConfigurationError, match="Expected port .* of worker 1 to be free"):
        CollectiveOps(cluster_of(resolver({"worker": [missing, own]}, index=1))).barrier()
    assert float(tf.reduce_sum(tf.ones(3))) == 3


def test_a_server_that_the_program_has_started_is_used() -> None:
    (own,) = addresses(1)
    cluster = cluster_of(resolver({"chief": [own], "worker": ["localhost:1"]}, "chief"))
    config = cluster.configured(tf.compat.v1.ConfigProto())
    assert config.experimental.collective_group_leader == "/job:chief/replica:0/task:0"
    server = tf.distribute.Server(cluster.spec, job_name="chief", task_index=0, config=config)
    assert cluster.server is server
    assert cluster.tasks == (("chief", 0), ("worker", 0)) and cluster.local_ranks == [0, 1]


def test_clusters_without_other_workers_train_alone() -> None:
    for spec, task in (({}, None), ({"worker": ["a:1"]}, "worker"), ({"worker": ["a:1", "b:1"]}, "evaluator")):
        assert isinstance(transport_of(resolver(spec, task)), SingleProcess)


@pytest.mark.parametrize(
    ("spec", "task", "message"),
    [
        ({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, ("worker", 0), "Remove 'ps'"),
        ({"worker": ["a:1", "b:1"]}, ("worker", 2), r"one of .*Received: \('worker', 2\)"),
        ({"worker": ["a", "b:1"]}, ("worker", 1), "Nearest: 'a:2222'"),
    ],
)
def test_wrong_clusters_are_refused(spec: dict[str, list[str]], task: tuple[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cluster_of(resolver(spec, *task))


def test_different_versions_are_an_error() -> None:
    with pytest.raises(ProcessError, match=r"keras .* in process 0 and 9.9 in process 1"):
        check_versions(lambda own: [own, {**versions(), "keras": "9.9"}], 0)
