"""Starts a program in several processes by MPI's launcher, labels their output, and tells which one failed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO

from engine.errors import ConfigurationError
from ipu._internal.processes.settings import GRADIENT_TYPE, LOCAL_REPLICAS

TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>: ?")
NOTICE = re.compile(rb"-{60,}\s*$")
"""The lines around MPI's notices, which repeat in many words what the launcher says in one."""
ENDED = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) (.*?)\.", re.DOTALL)


def launch(
    program: Sequence[str],
    processes: int,
    replicas: int = 1,
    workers: int | None = None,
    hosts: str | None = None,
    gradients: str | None = None,
) -> int:
    """Runs a Python program in `processes` processes of `replicas` replicas and `workers` threads; its exit status.

    `hosts` are machines as MPI's launcher takes them, `gradients` the type that gradients have between processes.

    Raises ConfigurationError for numbers below 1, no program, and where MPI's launcher is not installed.
    """
    for name, number in (
        ("processes", processes),
        ("replicas", replicas),
        ("workers", 1 if workers is None else workers),
    ):
        if number < 1:
            raise ConfigurationError(f"Expected --{name} to be at least 1. Received: {number}. Nearest: 1.")
    if not program:
        raise ConfigurationError("Expected a program after --. Received: none. Example: -- train.py --epochs 3.")
    cores = len(os.sched_getaffinity(0))
    each = workers or max(1, cores // processes)
    fits = processes * each <= cores and hosts is None
    binding = ["--map-by", f"slot:PE={each}", "--bind-to", "core"] if fits else ["--bind-to", "none", "--oversubscribe"]
    command = [mpiexec(), "-n", str(processes), "--tag-output", *binding]
    command += ["--host", hosts] if hosts else []
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    environment = {
        "NUMBA_NUM_THREADS": str(each),
        LOCAL_REPLICAS: str(replicas),
        "PYTHONUNBUFFERED": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    environment |= {GRADIENT_TYPE: gradients} if gradients else {}
    for name in environment:
        command += ["-x", name] if hosts else []
    return _run([*command, sys.executable, *program], {**os.environ, **environment})


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
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    notices: list[str] = []
    assert running.stdout is not None and running.stderr is not None
    threads = [
        threading.Thread(target=_forward, args=(running.stdout, sys.stdout.buffer, notices)),
        threading.Thread(target=_forward, args=(running.stderr, sys.stderr.buffer, notices)),
    ]
    for thread in threads:
        thread.start()
    try:
        status = running.wait()
    except KeyboardInterrupt:
        running.send_signal(signal.SIGINT)
        status = running.wait() or 130
    for thread in threads:
        thread.join()
    ended = ENDED.search(" ".join("".join(notices).split()))
    if status:
        which = f"process {ended[1]} on {ended[2]} ended first: {ended[3]}" if ended else "".join(notices).strip()
        print(f"python -m ipu.run: exit status {status}; {which or 'a process failed'}", file=sys.stderr, flush=True)
    return status


def _forward(lines: Iterable[bytes], out: IO[bytes], notices: list[str]) -> None:
    """Writes lines with the number of their process; MPI's notices go to a list."""
    inside = False
    for line in lines:
        tag = TAG.match(line)
        text = line[tag.end() :] if tag else line
        if NOTICE.match(text):
            inside = not inside
        elif inside or (tag is None and not line.strip()):
            notices.append(text.decode(errors="replace"))
        elif text.strip():
            out.write(b"[%s] %s" % (tag[1], text) if tag else text)
            out.flush()
