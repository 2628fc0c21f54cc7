"""Functions and programs in new processes, forked from a server that has imported TensorFlow and each Keras.

An import takes five seconds of processor time, a fork none. The server never runs an operation: with the first one
TensorFlow would start its threads, which a fork loses. Tests of what an import does start an interpreter instead.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from tests.interrupting import HANGS_SECONDS

CONTEXT = multiprocessing.get_context("forkserver")
SERVER: Any = forkserver._forkserver  # type: ignore[attr-defined]
PRELOADED = ["keras", "tf_keras", "engine.compile", "ipu.ipu_strategy", "tests.forking"]
ROOT = Path(__file__).parent.parent


def start_server() -> None:
    """Starts the server, if it does not run; it imports while the caller goes on."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the importing server must not get a Ctrl-C
    try:
        SERVER.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def use_server_of_parent() -> None:
    """Keeps a fork of the server's parent, which is not its parent itself, from taking the server for dead."""
    if SERVER._forkserver_pid:
        SERVER.ensure_running = lambda: None


class Fork:
    """A new process that calls a function; its output goes to a file."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, **environment: str) -> None:
        start_server()
        self._output = tempfile.NamedTemporaryFile("r+", encoding="utf-8")
        self._process = CONTEXT.Process(target=_call, args=(self._output.name, environment, function, arguments))
        self._process.start()

    def end(self) -> tuple[int | None, str]:
        """Waits for the end of the process, once; its exit code and all it has printed."""
        self._process.join(HANGS_SECONDS)
        if self._process.is_alive():  # otherwise it would be joined at exit
            self._process.kill()
            self._process.join()
        with self._output:
            return self._process.exitcode, self._output.read()

    def kill(self) -> None:
        """Ends the process if it still runs, even while another thread waits for its end."""
        self._process.kill()


def run(function: Callable[..., Any], *arguments: Any, **environment: str) -> tuple[int | None, str]:
    """The exit code of a new process that calls a function, and all it has printed."""
    return Fork(function, *arguments, **environment).end()


def program(path: str | Path, *arguments: str) -> None:
    """Runs a file as `python path arguments ...` does."""
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(str(path), run_name="__main__")


def module(name: str, *arguments: str) -> None:
    """Runs a module as `python -m name arguments ...` does in the project's folder."""
    sys.argv = [name, *arguments]
    os.chdir(ROOT)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _call(output: str, environment: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    try:
        function(*arguments)
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves these out
