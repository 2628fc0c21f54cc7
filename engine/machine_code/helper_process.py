"""Helper processes beside a program, which store object code that it needs.

They are not children of the program, print nothing, and hold a lock as long as they live, so each lock has one helper
at a time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.machine_code.switches import is_on

VARIABLE = "SOFTWARE_IPU_COMPILE_AHEAD"
"""The environment variable that switches helpers off where it is 0."""
PATIENCE = 5.0
"""Seconds for a shell to start a helper. It takes some milliseconds."""


def may_start() -> bool:
    """Whether helpers are switched on, and the system and this interpreter can start any."""
    return is_on(VARIABLE) and os.name == "posix" and _is_python(sys.executable)


def _is_python(executable: str) -> bool:
    """Whether this is an interpreter, not a frozen program or a server that embeds one."""
    return not getattr(sys, "frozen", False) and Path(executable).name.lower().startswith(("python", "pypy"))


def spawn(module: str, argument: str, *handles: int) -> None:
    """Starts a process that calls `module.main(argument)` and has these handles, of which one may hold a lock.

    It is isolated from the user's environment and packages as this one is, and never looks into the current folder.
    The shell ends at once, so the helper is not a child of this process. Raises OSError if no process can be started.
    """
    import subprocess  # a server does without it

    root = Path(__file__).parent.parent.parent
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(sys.argv[2])"
    helper = [sys.executable, "-P", *isolation(), "-W", "ignore", "-c", code, str(root), argument]
    nowhere = subprocess.DEVNULL
    with contextlib.suppress(subprocess.SubprocessError):
        subprocess.run(
            ["/bin/sh", "-c", '"$0" "$@" &', *helper],
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            pass_fds=handles,
            start_new_session=True,
            timeout=PATIENCE,
            check=False,
        )


def isolation() -> list[str]:
    """The options by which this interpreter ignores Python's environment variables and the user's packages."""
    options = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [option for option, is_set in options.items() if is_set]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Yields the handle of a locked file, None if another process holds the lock; copies of a handle hold it, too."""
    import fcntl  # not on Windows, where no helper is started

    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield handle
    finally:
        os.close(handle)


def is_locked(lock: Path) -> bool:
    """Whether a living helper holds this lock."""
    if not lock.exists():
        return False
    try:
        with locked(lock) as handle:
            return handle is None
    except OSError:
        return False
