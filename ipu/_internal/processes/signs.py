"""Signs of life of this process, and the operating system's view of another one on this machine."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Sign:
    """A process that is alive: the collective in which it waits, "" outside of one, the line of the program that it
    executes, "" where unknown, and its seconds of processor time so far."""

    call: str
    line: str
    seconds: float


def own_sign(call: str) -> Sign:
    """The sign of this process."""
    return Sign(call, _line(), time.process_time())


def _line() -> str:
    """The innermost line of the program itself that the main thread executes."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_filename.startswith(_installed()):
        frame = frame.f_back
    if frame is None:
        return ""
    name = frame.f_code.co_name
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" + ("" if name == "<module>" else f" in {name}")


@cache
def _installed() -> tuple[str, ...]:
    """Prefixes of files that are no part of the program."""
    packages = [Path(__file__).parents[3] / name for name in ("engine", "ipu", "keras_ext")]
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    found = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return ("<frozen", *(f"{path}{os.sep}" for path in [*packages, *libraries, *found]))


def state_of(pid: int) -> tuple[str, float] | None:
    """A process of this machine: the letter of its state, as `ps` shows it, and its seconds of processor time.

    None where it has ended, or where the system has no /proc.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (fields[0], sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"))


def started_here() -> dict[int, list[int]]:
    """The process ids on this machine of each rank of this job, by the environment that MPI's launcher has set."""
    job = f"PMIX_NAMESPACE={os.environ.get('PMIX_NAMESPACE')}".encode()
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            values = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if job in values:
            for value in values:
                if value.startswith(b"PMIX_RANK="):
                    found.setdefault(int(value[10:]), []).append(int(folder.name))
    return found
