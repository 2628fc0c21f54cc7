"""Runs a program in several processes, and takes the notes of the first; as a program, one of these processes."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.forking import ROOT


def run(source: str, keras: str, f: str, processes: int, replicas: int) -> Any:
    """The notes of the first of the processes, each of which has so many replicas."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program").write_text(source)
        sizes = ("-n", str(processes), "--replicas", str(replicas), "--workers", "1")
        command = [sys.executable, "-m", "ipu.run", *sizes, "--", __file__, folder, keras, f]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        notes = Path(folder) / "notes"
        if not notes.exists():
            raise RuntimeError(f"The processes ended with {ended.returncode}: {ended.stderr[-2000:]}")
        return pickle.loads(notes.read_bytes())


def _one_of_them(folder: str, keras: str, f: str) -> None:
    from tests.crossings.check import program_of
    from tests.crossings.harness import run

    items = run(program_of((Path(folder) / "program").read_text()), importlib.import_module(keras), "scope", f)
    import popdist

    if popdist.getInstanceIndex() == 0:
        (Path(folder) / "part").write_bytes(pickle.dumps(items))
        (Path(folder) / "part").rename(Path(folder) / "notes")


if __name__ == "__main__":
    _one_of_them(*sys.argv[1:])
