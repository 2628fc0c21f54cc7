"""A process that parses large JSON bodies: a JSON library keeps the interpreter from all other threads meanwhile.

The process gets a body and a manifest, and answers with the arrays, or with the error, all of them pickled.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine.serving.errors import RequestError
from engine.serving.manifest import Manifest
from engine.serving.rest import parse_request

STRINGS_AT_ONCE = 1 << 14
"""Most strings in a message: to unpickle them keeps the interpreter from other threads, too."""


class ParserProcess:
    """Parses bodies in a process of its own, which starts with the first one; one body at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def parse(self, body: bytes, manifest: Manifest) -> tuple[list[np.ndarray], bool]:
        """Parses a body as `parse_request` does, in the process. Raises RequestError, 503 where the process has ended
        over this body.
        """
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            try:
                _send(process.stdin, (body, manifest))
                answer = pickle.load(process.stdout)
                if isinstance(answer, RequestError):
                    raise answer
                counts, in_rows = answer
                arrays = [_whole([pickle.load(process.stdout) for _ in range(count)]) for count in counts]
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self._end()
                raise RequestError(503, "The request could not be parsed: its process has ended") from error
        return arrays, in_rows

    def close(self) -> None:
        """Ends the process, if there is one."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            root = str(Path(__file__).parents[2])
            code = "import sys; sys.path.insert(0, sys.argv[1]); from engine.serving.parser import main; main()"
            command = [sys.executable, "-P", *isolation(), "-c", code, root]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with contextlib.suppress(OSError):
                    stream.close()


def main() -> None:
    """Answers until the input ends. Leaves signals of the server's terminal to the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, EOFError):
        while True:
            body, manifest = pickle.load(sys.stdin.buffer)
            try:
                arrays, in_rows = parse_request(body, manifest)
            except RequestError as error:
                _send(sys.stdout.buffer, error)
                continue
            slices = list(map(_slices, arrays))
            _send(sys.stdout.buffer, (list(map(len, slices)), in_rows))
            for each in chain.from_iterable(slices):
                _send(sys.stdout.buffer, each)


def _slices(array: np.ndarray) -> list[np.ndarray]:
    count = array.size // STRINGS_AT_ONCE if array.dtype == object else 0
    return np.array_split(array, count) if count > 1 else [array]


def _whole(slices: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(slices) if len(slices) > 1 else slices[0]


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def isolation() -> list[str]:
    """The options by which this interpreter ignores Python's environment variables and the user's packages."""
    options = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [option for option, is_set in options.items() if is_set]
