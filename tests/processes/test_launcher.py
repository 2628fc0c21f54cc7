"""`python -m ipu.run`: labelled output, collectives between two processes, and the end of one that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipu._internal.processes.launcher import most_of
from ipu._internal.processes.signs import state_of
from ipu._internal.processes.time_limits import SILENCE
from tests.interrupting import HANGS_SECONDS, PATIENCE_SECONDS, wait_for

pytest.importorskip("mpi4py", exc_type=ImportError)
PROGRAMS = Path(__file__).parent / "programs"


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m ipu.run` with these arguments and environment variables."""
    command, environment = [sys.executable, "-m", "ipu.run", *arguments], {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS_SECONDS)


def test_two_processes_call_collectives_and_differences_are_errors() -> None:
    done = run("--processes", "2", "--", str(PROGRAMS / "collectives.py"), "all")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f"[{rank}] collectives agree" in done.stdout
        assert (
            f"[{rank}] ProcessError: Expected all processes to call the same collectives in the same order. Received: "
            "all_reduce sum of float32[3] gradients in process 0; all_reduce sum of float32[4] gradients in process 1."
        ) in done.stdout
        assert f"[{rank}] ProcessError: Expected processes that call the same" in done.stdout
        assert f"[{rank}] after an interrupt: Expected processes that call the same" in done.stdout


def fail(action: str, processes: int = 2, **variables: str) -> subprocess.CompletedProcess[str]:
    """Processes of which one fails."""
    return run("-n", str(processes), "--workers", "1", "--", str(PROGRAMS / "failures.py"), action, **variables)


def test_sums_of_four_processes_have_the_same_bits_and_a_killed_one_ends_all() -> None:
    done = fail("is killed", 4)
    assert done.stdout.count("sums have the same bits") == 4
    assert done.returncode == 137
    assert "process 1 on" in done.stderr and "signal 9" in done.stderr


def test_a_slow_process_is_named_and_a_stopped_one_is_an_error() -> None:
    done = fail("is slow, then stopped", **{SILENCE: "3"})
    assert done.returncode == 1 and done.stdout.count("slow processes are no error") == 2
    assert re.search(
        r"\[0\] Process 0 waits in barrier of uint8\[0\] after the slow one for \d+ s: process 1 .*failures.py:\d+",
        done.stderr,
    ), done.stderr  # under load, not by the first line: an answer may take more than a second
    assert (
        "ProcessError: Expected signs of life of all 2 processes each 3 seconds, in all_reduce sum of float32[3] "
        "gradients. Received: process 1 is stopped by a signal"
    ) in done.stderr


@pytest.mark.explore
def test_a_process_that_never_starts_is_an_error() -> None:
    done = fail("never starts", **{SILENCE: "3"})
    assert done.returncode == 1 and "within 3 seconds. Received: process 1 is not running" in done.stderr


@pytest.mark.explore
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_their_launcher_but_not_of_hang_up_under_nohup(number: int) -> None:
    command = [
        "nohup",
        sys.executable,
        "-m",
        "ipu.run",
        "-n",
        "2",
        "--workers",
        "1",
        "--",
        str(PROGRAMS / "failures.py"),
        "waits",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as launcher:
        assert launcher.stdout is not None
        pids = [int(launcher.stdout.readline().rpartition(" ")[2]) for _ in range(2)]
        os.killpg(launcher.pid, signal.SIGHUP)
        time.sleep(1)
        assert all(state_of(pid) for pid in pids)
        launcher.send_signal(number)
        assert wait_for(lambda: not any(state_of(pid) for pid in pids))
    status = launcher.wait(PATIENCE_SECONDS)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 1, signal.SIGKILL: -signal.SIGKILL}[number]


@pytest.mark.explore
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a process another host name")
def test_processes_on_two_hosts(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nhost=$1; shift\nexec unshare -u sh -c "hostname $host; $*"\n')
    agent.chmod(0o755)
    program = ["--hosts", "first:2,second:2", "--", str(PROGRAMS / "hosts.py")]
    done = run("-n", "4", *program, PRTE_MCA_plm_ssh_agent=str(agent))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] {('first', 'second')[rank // 2]}: {rank % 2} of 2, {rank} of 4; 6.0" for rank in range(4)
    ]


@pytest.mark.explore
def test_sums_and_training_have_the_same_bits_in_each_run() -> None:
    sizes = ("--replicas", "2", "--workers", "1", "--bucket-bytes", "256")
    runs = [run("-n", "3", *sizes, "--", str(PROGRAMS / "sums.py")).stdout.splitlines() for _ in range(2)]
    assert len(runs[0]) == 3 and len({line.partition(" ")[2] for line in runs[0] + runs[1]}) == 1


@pytest.mark.explore
def test_progress_bars_are_those_of_process_0() -> None:
    done = run("-n", "2", "--", str(PROGRAMS / "bars.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    bars = [line[:3] for line in done.stdout.splitlines() if "4/4" in line]
    assert bars.count("[1]") == 2 and len(bars) >= 10, done.stdout  # process 1 draws those of verbose=2


@pytest.mark.explore
def test_horovod_its_documented_pipeline_and_an_estimator(tmp_path: Path) -> None:
    done = run("--processes", "2", "--", str(PROGRAMS / "horovod.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(f"[{rank}] Horovod agrees" in done.stdout for rank in (0, 1))


@pytest.mark.explore
def test_the_example_learns() -> None:
    pytest.importorskip("sklearn")
    done = run("--processes", "2", "--gradients", "bfloat16", "--", str(PROGRAMS.parents[2] / "examples/processes.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    accuracies = [float(line.rpartition(" ")[2].rstrip("%")) for line in done.stdout.splitlines() if "accuracy" in line]
    assert len(accuracies) == 5 and accuracies[-1] > 90, done.stdout
    assert "[0] 2 processes, " in done.stdout


def test_processes_of_a_host_add_up() -> None:
    assert most_of("a,b:2,a:2", 5) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0", "--", "x.py"], "--processes to be at least 1"),
        (["-n", "2"], "Expected a program after --"),
        (["-n", "4", "--hosts", "a:1,b:2", "--", "x.py"], "as in host1:2,host2:2. Received: 'a:1,b:2'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and message in done.stderr
