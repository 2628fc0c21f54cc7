"""Launch of a program in several processes by MPI's launcher, with labelled output and the process that failed
first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from engine.errors import ConfigurationError
from engine.runtime.threads import usable_cores
from ipu._internal.processes.output import LAUNCHED, Output
from ipu._internal.processes.settings import BUCKET_BYTES, GRADIENT_TYPE, IPUS_PER_REPLICA, LOCAL_REPLICAS

ENDING = 10.0
"""Seconds that MPI's launcher has to end all processes after the first has failed."""
SSH = "PRTE_MCA_plm_ssh_args"
"""The environment variable with the options of ssh; without one, a host that does not answer takes two minutes."""
INTERPRETER = re.compile(r"python[\d.]*")
"""Names of Python's interpreter."""
PR_SET_PDEATHSIG = 1
"""Option of Linux' prctl: the signal that a process gets when its parent ends."""


def launch(
    program: Sequence[str],
    processes: int,
    replicas: int = 1,
    workers: int | None = None,
    hosts: str | None = None,
    gradients: str | None = None,
    bucket_bytes: int | None = None,
    ipus_per_replica: int = 1,
) -> int:
    """Runs a Python program in `processes` processes of `replicas` replicas and `workers` threads; returns its status.

    `hosts` are machines in the syntax of MPI's launcher, `gradients` the type of gradients between processes, and
    `bucket_bytes` the bytes of gradients that are summed together (by default all, on one host). A replica has
    `ipus_per_replica` IPUs, a number that the program gets from popdist.

    Raises ConfigurationError for numbers below 1, no program, and where MPI's launcher is not installed.
    """
    for name, number in (
        ("processes", processes),
        ("replicas", replicas),
        ("ipus-per-replica", ipus_per_replica),
        ("workers", 1 if workers is None else workers),
        ("bucket-bytes", 1 if bucket_bytes is None else bucket_bytes),
    ):
        if number < 1:
            raise ConfigurationError(f"Expected --{name} to be at least 1. Received: {number}. Nearest: 1.")
    without_interpreter(program)
    cores = usable_cores()
    each = workers or max(1, cores // (most_of(hosts, processes) if hosts else processes))
    fits = processes * each <= cores and hosts is None
    binding = ["--map-by", f"slot:PE={each}", "--bind-to", "core"] if fits else ["--bind-to", "none", "--oversubscribe"]
    command = [mpiexec(), "-n", str(processes), "--tag-output", *binding]
    command += ["--host", hosts] if hosts else []
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    environment = {
        "NUMBA_NUM_THREADS": str(each),
        LOCAL_REPLICAS: str(replicas),
        IPUS_PER_REPLICA: str(ipus_per_replica),
        "PYTHONUNBUFFERED": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        LAUNCHED: "1",
    }
    environment |= {GRADIENT_TYPE: gradients} if gradients else {}
    if bucket_bytes is None and hosts is None and BUCKET_BYTES not in os.environ:
        # All cores of one host are busy: a thread that sums at the same time would delay the step.
        bucket_bytes = sys.maxsize
    environment |= {} if bucket_bytes is None else {BUCKET_BYTES: str(bucket_bytes)}
    for name in environment:
        command += ["-x", name] if hosts else []
    if hosts and "PRTE_MCA_plm_ssh_agent" not in os.environ:
        environment[SSH] = os.environ.get(SSH, "-o ConnectTimeout=20")
    interpreter = program[0] if program[0] != (rest := without_interpreter(program))[0] else ""
    chosen = interpreter if os.sep in interpreter else sys.executable
    return _run([*command, chosen, *rest], {**os.environ, **environment})


def without_interpreter(program: Sequence[str]) -> list[str]:
    """The program without an interpreter before it, as in `python train.py`. Raises ConfigurationError for none."""
    rest = list(program[1:] if program and INTERPRETER.fullmatch(Path(program[0]).name) else program)
    if not rest:
        raise ConfigurationError("Expected a program after --. Received: none. Example: -- train.py --epochs 3.")
    return rest


def most_of(hosts: str, processes: int) -> int:
    """The most processes of one host. Raises ConfigurationError unless the hosts have as many as there are."""
    named = [(name, count or "1") for name, _, count in (each.partition(":") for each in hosts.split(","))]
    counts: Counter[str] = Counter()
    for name, count in named:
        counts[name] += int(count) if count.isdecimal() else 0
    if not all(count.isdecimal() for _, count in named) or counts.total() < processes:
        raise ConfigurationError(
            f"Expected --hosts with numbers of processes that add up to {processes}, as in "
            f"host1:{processes - processes // 2},host2:{processes // 2}. Received: {hosts!r}."
        )
    return max(counts.values())


def mpiexec() -> str:
    """The path of MPI's launcher. Raises ConfigurationError where there is none."""
    beside = [Path(sys.executable).with_name("mpiexec")]
    try:
        beside += [Path(str(file.locate())) for file in distribution("openmpi").files or () if file.name == "mpiexec"]
    except PackageNotFoundError:
        pass
    found = next((str(path) for path in beside if path.exists()), None) or shutil.which("mpiexec")
    if found is None:
        raise ConfigurationError(
            "Expected MPI's launcher. Received: no mpiexec. Install it: pip install 'software-ipu[mpi]'."
        )
    return found


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    # MPI's launcher ends on hang-up even under nohup, unless the signal does not come to its group.
    group = 0 if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else None
    running = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_end_with_parent,
        process_group=group,
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: running.terminate())
    output = Output()
    assert running.stdout is not None and running.stderr is not None
    threads = [
        threading.Thread(target=output.forward, args=(pipe, out.buffer), daemon=True)
        for pipe, out in ((running.stdout, sys.stdout), (running.stderr, sys.stderr))
    ]
    for thread in threads:
        thread.start()
    interrupted = False
    try:
        while running.poll() is None and not output.aborted.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(0.2)
    except KeyboardInterrupt:
        interrupted = True
        running.terminate()
    if output.broken is not None:
        running.terminate()
    try:
        status = running.wait(ENDING)
    except subprocess.TimeoutExpired:  # it waits for a machine that does not answer
        running.kill()
        status = max(1, running.wait())
    for thread in threads:
        thread.join(1.0 if status else None)  # a process that is stopped keeps the pipes open
    if output.broken is not None:
        raise output.broken
    status = 130 if interrupted else 128 - status if status < 0 else status
    lost = [] if status else output.lost()
    if status or lost:
        outcome = "interrupted" if interrupted else lost_in_words(lost) if lost else output.failure()
        print(f"python -m ipu.run: exit status {status or 1}; {outcome}", file=sys.stderr, flush=True)
    return status or bool(lost)


def lost_in_words(ranks: Sequence[int]) -> str:
    """The text of an error about processes that have not ended, though MPI's launcher has."""
    return f"lost processes {', '.join(map(str, ranks))}: MPI's daemon on a machine, or its connection, has ended"


def _end_with_parent() -> None:
    """Makes the system end MPI's launcher, which ends the processes, if this process is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
