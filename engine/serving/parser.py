"""A process that parses large JSON bodies: a JSON library keeps the interpreter from all other threads meanwhile.

The process gets a manifest and a body, and answers with the bytes of the arrays, or with the error.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import numpy as np

from engine.serving.errors import RequestError
from engine.serving.infer import of_bytes, to_bytes
from engine.serving.manifest import Manifest, parsed_manifest
from engine.serving.rest import parse_request


class ParserProcess:
    """Parses bodies in a process of its own, which starts with the first one; one body at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def parse(self, body: bytes, manifest: Manifest) -> tuple[list[np.ndarray], bool]:
        """Parses a body as `parse_request` does, in the process. Raises RequestError, 503 where the process has ended
        over this body.
        """
        with self._lock:
            connection = self._started()
            try:
                _send(connection, asdict(manifest), body)
                fields, content = _receive(connection)
            except (OSError, EOFError) as error:
                self._end()
                raise RequestError(503, "The request could not be parsed: its process has ended") from error
        if "error" in fields:
            raise RequestError(fields["status"], fields["error"])
        arrays, rest = [], memoryview(content)
        for tensor, shape, size in zip(manifest.inputs, fields["shapes"], fields["sizes"], strict=True):
            arrays.append(of_bytes(rest[:size], shape, tensor))
            rest = rest[size:]
        return arrays, fields["in_rows"]

    def close(self) -> None:
        """Ends the process, if there is one."""
        with self._lock:
            self._end()

    def _started(self) -> Connection:
        if self._connection is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._connection, other = Pipe()
            with other:
                root, handle = str(Path(__file__).parents[2]), other.fileno()
                code = "import sys; sys.path.insert(0, sys.argv[1]); from engine.serving.parser import main; main()"
                command = [sys.executable, "-P", *isolation(), "-c", code, root, str(handle)]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[handle])
        return self._connection

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def main() -> None:
    """Answers until the input ends. Leaves signals of the server's terminal to the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, EOFError), Connection(int(sys.argv[2])) as connection:
        while True:
            fields, body = _receive(connection)
            manifest = parsed_manifest(fields)
            try:
                arrays, in_rows = parse_request(body, manifest)
            except RequestError as error:
                _send(connection, {"error": error.message, "status": error.status}, b"")
                continue
            parts = [to_bytes(*pair) for pair in zip(arrays, manifest.inputs, strict=True)]
            answer = {"in_rows": in_rows, "shapes": [each.shape for each in arrays], "sizes": list(map(len, parts))}
            _send(connection, answer, b"".join(parts))


def _send(connection: Connection, fields: dict[str, Any], content: bytes) -> None:
    connection.send_bytes(json.dumps(fields).encode())
    connection.send_bytes(content)


def _receive(connection: Connection) -> tuple[dict[str, Any], bytes]:
    return json.loads(connection.recv_bytes()), connection.recv_bytes()


def isolation() -> list[str]:
    """The options by which this interpreter ignores Python's environment variables and the user's packages."""
    options = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [option for option, is_set in options.items() if is_set]
