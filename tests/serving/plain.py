"""Exported directories made without TensorFlow, and the engine's server of them as a process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.files.executable_file import ExecutableFile, write_executable
from engine.files.signature import Signature
from engine.ir.shape import ELEMENT_TYPES, NUMPY_TYPES
from engine.serving.manifest import Manifest, TensorManifest
from tests.files.programs import classifier
from tests.interrupting import PATIENCE_SECONDS, wait_for


def export(directory: Path, file: ExecutableFile | None = None, *, with_steps: bool = False) -> ExecutableFile:
    """Writes an exported directory that the server reads; the program is the classifier if none is given."""
    file = file or classifier(8)
    inputs, outputs = tensors(file.signature)
    manifest = Manifest("p.popef", 1, inputs, outputs, inputs, outputs, has_preprocessing=with_steps)
    (directory / "assets").mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(b"")
    write_executable(directory / "assets" / "p.popef", file)
    manifest.write(directory / "assets")
    return file


def tensors(signature: Signature) -> tuple[tuple[TensorManifest, ...], tuple[TensorManifest, ...]]:
    """The inputs and outputs of a signature as a manifest has them."""
    inputs, outputs = (
        tuple(TensorManifest(each.name, each.shape, NUMPY_TYPES[ELEMENT_TYPES[each.dtype]].name) for each in infos)
        for infos in (signature.inputs, signature.outputs)
    )
    return inputs, outputs


@contextlib.contextmanager
def serving(directory: Path, log: Path, *options: str) -> Iterator[tuple[int, int]]:
    """The port and process id of a directory's server, which runs in a new process and exits with 0 on SIGTERM."""
    command = [sys.executable, "-m", "engine.serving", str(directory), "--port", "0", *options]
    root = Path(__file__).parents[2]
    address = re.compile(r"Serving https?://127\.0\.0\.1:(\d+)/")
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors, cwd=root, env={**os.environ}) as process:
        try:
            wait_for(lambda: address.search(log.read_text()) is not None or process.poll() is not None)
            found = address.search(log.read_text())
            assert found is not None, log.read_text()[-2000:]
            yield int(found[1]), process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
