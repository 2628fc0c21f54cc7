"""A process that parses large JSON bodies: a JSON library keeps the interpreter from all other threads meanwhile.

The process gets a manifest and a body, and answers with the bytes of the arrays, or with the error.
"""

from __future__ import annotations

import contextlib
import json
import signal
import struct
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine.serving.errors import RequestError
from engine.serving.manifest import STRING, Manifest, TensorManifest, parsed_manifest
from engine.serving.rest import parse_request

LENGTHS = struct.Struct("<QQ")
"""Layout of the two lengths in each message: bytes of the JSON, and of the arrays after it."""


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
                _send(process.stdin, asdict(manifest), body)
                fields, content = _receive(process.stdout)
            except (OSError, EOFError) as error:
                self._end()
                raise RequestError(503, "The request could not be parsed: its process has ended") from error
        if "error" in fields:
            raise RequestError(fields["status"], fields["error"])
        return _arrays(fields["shapes"], content, manifest), fields["in_rows"]

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
            fields, body = _receive(sys.stdin.buffer)
            manifest = parsed_manifest(fields)
            try:
                arrays, in_rows = parse_request(body, manifest)
            except RequestError as error:
                _send(sys.stdout.buffer, {"error": error.message, "status": error.status}, b"")
                continue
            parts = [_content(*pair) for pair in zip(arrays, manifest.inputs, strict=True)]
            answer = {"in_rows": in_rows, "shapes": [each.shape for each in arrays]}
            _send(sys.stdout.buffer, answer, b"".join(parts))


def _send(stream: IO[bytes], fields: dict[str, Any], content: bytes) -> None:
    text = json.dumps(fields).encode()
    stream.write(LENGTHS.pack(len(text), len(content)))
    stream.write(text)
    stream.write(content)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    lengths = LENGTHS.unpack(_exactly(stream, LENGTHS.size))
    text, content = (_exactly(stream, length) for length in lengths)
    return json.loads(text), content


def _exactly(stream: IO[bytes], length: int) -> bytes:
    found = stream.read(length)
    if len(found) < length:
        raise EOFError
    return found


def _content(array: np.ndarray, tensor: TensorManifest) -> bytes:
    if tensor.dtype != STRING:
        return array.tobytes()
    return b"".join(LENGTHS.pack(len(each), 0) + each for each in array.reshape(-1).tolist())


def _arrays(shapes: list[list[int]], content: bytes, manifest: Manifest) -> list[np.ndarray]:
    found, at = [], 0
    for shape, tensor in zip(shapes, manifest.inputs, strict=True):
        if tensor.dtype != STRING:
            count = int(np.prod(shape))
            found.append(np.frombuffer(content, tensor.numpy_dtype, count, at).reshape(shape))
            at += count * tensor.numpy_dtype.itemsize
            continue
        strings = np.empty(int(np.prod(shape)), object)
        for k in range(len(strings)):
            length, _ = LENGTHS.unpack_from(content, at)
            at += LENGTHS.size + length
            strings[k] = content[at - length : at]
        found.append(strings.reshape(shape))
    return found


def isolation() -> list[str]:
    """The options by which this interpreter ignores Python's environment variables and the user's packages."""
    options = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [option for option, is_set in options.items() if is_set]
