"""Object code for ARM, cross-compiled: every family of codelets and the emitted loops compile; nothing is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS

PROCESSOR = {"NUMBA_CPU_NAME": "neoverse-n1", "NUMBA_CPU_FEATURES": "+neon"}
PROGRAM = """
import sys
import numpy as np

from engine.codelets.language.build import Codelet
from engine.compile import compile_module
from engine.machine_code import loading, processor
from tests.fuzz import seed_modules

first, last, with_codelets = map(int, sys.argv[1:])
names = set()
def link(objects, wanted):
    for code in objects:  # ELF, for machine 183
        assert code[:4] == b"\\x7fELF" and code[18:20] == bytes([183, 0]), wanted
    names.update(wanted)
    return dict.fromkeys(wanted, 64)
loading.link = link
if not with_codelets:
    Codelet.is_made, Codelet.address = True, 64
assert processor.ARM and not processor.X86 and processor.registers() == 32
for seed in range(first, last):
    module = seed_modules.seed_module(np.random.default_rng(seed))
    compile_module(module, ["variable"] * len(module.entry.parameters), {})
print(len(names), "kinds of code")
"""


def run(first: int, last: int, with_codelets: bool, cache: Path) -> int:
    """Compiles the seed modules of these numbers; returns the number of functions compiled."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(first), str(last), str(int(with_codelets))],
        env={**os.environ, **PROCESSOR, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[0])


def test_emitted_loops_compile(tmp_path: Path) -> None:
    assert run(0, 8, False, tmp_path) > 20


@pytest.mark.explore
@pytest.mark.slow
def test_codelets_compile(tmp_path: Path) -> None:
    assert run(0, 40, True, tmp_path) > 100
