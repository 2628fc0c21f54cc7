"""Compiles Python's bytecode and the codelets of all programs where the project is installed from a clone.

Otherwise the first program would compile them, before its first step. What belongs to sources that have changed since
is not used. pip itself compiles the bytecode of wheels.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("engine", "ipu", "keras_ext")
CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from engine.runtime.compile_ahead import make_part
make_part(int(sys.argv[2]), int(sys.argv[3]))
"""
PATIENCE = 300.0
"""Seconds for the compilation of codelets. It takes some 15 of one core."""


class Bytecode(BuildHookInterface):
    """A build hook that compiles before the files of an editable installation are written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles what the user's environment does not switch off; what cannot be compiled or written is no error."""
        if version != "editable":
            return
        if not sys.dont_write_bytecode:
            for package in PACKAGES:
                compileall.compile_dir(Path(self.root, package), quiet=2)
        if os.environ.get("SOFTWARE_IPU_COMPILE_AHEAD") != "0" and find_spec("numba") is not None:
            self.app.display_info("Compiling the codelets of all programs for this processor")
            compile_codelets(self.root)


def compile_codelets(root: str) -> None:
    """Compiles the codelets that depend on no model, in a process for each core, into the user's cache."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    commands = [[sys.executable, "-P", "-c", CODE, root, str(part), str(cores)] for part in range(cores)]
    nowhere = subprocess.DEVNULL
    running = [subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere) for command in commands]
    for each in running:
        try:
            each.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()
