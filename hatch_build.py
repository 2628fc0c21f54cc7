"""Compiles Python's bytecode, the codelets of all programs and the fused loops of usual ones where the project is
installed from a clone, and codelets and loops for usual processors into wheels.

Otherwise the first program would compile them, before its first step. What belongs to sources that have changed since
is not used. pip itself compiles the bytecode of wheels.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("engine", "ipu", "keras_ext")
CODE = "import sys; sys.path.insert(0, sys.argv[1]); from engine import installation; installation."
LIST = """
import json, sys
sys.path.insert(0, sys.argv[1])
from engine.machine_code.installed_objects import PROCESSORS
print(json.dumps(PROCESSORS))
"""
VARIABLE = "SOFTWARE_IPU_COMPILE_AHEAD"
"""The environment variable that switches the compilation of codelets off where it is 0."""
PATIENCE = 600.0
"""Seconds for one process that compiles codelets. It takes some 20 of one core."""


class Compilation(BuildHookInterface):
    """A build hook that compiles before the files of a wheel or of an editable installation are written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles what the user's environment does not switch off; what cannot be compiled or written is no error."""
        if version == "editable" and not sys.dont_write_bytecode:
            for package in PACKAGES:
                compileall.compile_dir(Path(self.root, package), quiet=2)
        if os.environ.get(VARIABLE) == "0" or find_spec("numba") is None:
            return
        if version == "editable":
            compile_codelets(self.root, self.app.display_info)
        else:
            self.folder = tempfile.TemporaryDirectory()  # until the files of the wheel have been read
            for path in archives(self.root, Path(self.folder.name), self.app.display_info):
                build_data["force_include"][str(path)] = f"engine/data/objects/{path.name}"


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def compile_codelets(root: str, say: Callable[[str], None]) -> None:
    """Compiles codelets and usual loops, in a process for each core, into the user's cache."""
    count = cores()
    parts = {f"part {part + 1} of {count}": (f"compile_part({part}, {count})", {}) for part in range(count)}
    run(root, parts, say)


def archives(root: str, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Compiles codelets and usual loops for the processors that wheels have them for; returns the files."""
    listed = subprocess.run([sys.executable, "-P", "-c", LIST, root], capture_output=True, text=True)
    work = {}
    for level, (name, features, caches) in json.loads(listed.stdout or "{}").items():
        for size in caches:
            environment = {
                "NUMBA_CPU_NAME": name,
                "NUMBA_CPU_FEATURES": features,
                "SOFTWARE_IPU_CACHE_BYTES": str(size),
            }
            work[f"{level} with a cache of {size >> 10} KiB"] = f"write_archive({str(folder)!r})", environment
    run(root, work, say)
    return sorted(folder.glob("*.zip"))


def run(root: str, work: dict[str, tuple[str, dict[str, str]]], say: Callable[[str], None]) -> None:
    """Runs calls of engine/installation.py in processes of these environments, one for each core at a time."""

    def process(call: str, environment: dict[str, str]) -> bool:
        command = [sys.executable, "-P", "-c", CODE + call, root]
        try:
            return not subprocess.run(
                command, env=os.environ | environment, capture_output=True, timeout=PATIENCE
            ).returncode
        except subprocess.TimeoutExpired:
            return False

    with ThreadPoolExecutor(cores()) as pool:
        running = {pool.submit(process, *each): name for name, each in work.items()}
        for count, future in enumerate(as_completed(running), 1):
            made = "compiled" if future.result() else "not compiled"
            say(f"Codelets and loops, {running[future]}: {made} ({count} of {len(work)})")
