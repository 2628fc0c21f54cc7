"""Object code for ARM, cross-compiled and relocated here: nothing is run; test_emulation.py does that."""

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

from engine.codelets.language import build
from engine.codelets.language.build import Codelet, MachineCode
from engine.compile import compile_module
from engine.machine_code import elf, processor
from tests.fuzz import seed_modules

first, last, with_codelets = map(int, sys.argv[1:])
names = set()
def link(objects):
    found = set()
    for code in objects:  # ELF, for machine 183
        assert code[:4] == b"\\x7fELF" and code[18:20] == bytes([183, 0])
        found |= {name for name, is_seen, section, _ in elf._Object(code).symbols() if is_seen and section}
    names.update(found)
    return dict.fromkeys(found, 64)
build.link = link
if not with_codelets:
    MachineCode.is_made = property(lambda each: type(each) is Codelet or each._address is not None)
    MachineCode.address = 64
assert processor.ARM and not processor.X86 and processor.registers() == 32
for seed in range(first, last):
    module = seed_modules.seed_module(np.random.default_rng(seed))
    compile_module(module, ["variable"] * len(module.entry.parameters), {})
print(len(names), "kinds of code")
"""
RELOCATIONS = """
import mmap
from engine.errors import InternalError
from engine.machine_code import relocations

BASE = 0x7F12_3456_0000
memory = mmap.mmap(-1, 4096)
place = relocations.Place(memory, BASE, 1024)
def word(at, size=4):
    return int.from_bytes(memory[at : at + size], "little")
def relocate(kind, at, value, instruction=0):
    memory[at : at + 4] = instruction.to_bytes(4, "little")
    place.relocate(kind, at, value)
    return word(at)
def branched(at):  # the address that a branch at an offset leads to
    words = word(at) & 0x3FFFFFF
    return BASE + at + 4 * (words - (words >> 25 << 26))

far, moved = 0xFEDC_BA98_7654_3210, 0
for part, kind in enumerate((264, 266, 268, 269)):
    instruction = relocate(kind, 4 * part, far, 0xF2800008 | part << 21 | 0x5A5A << 5)  # movk x8, 0x5a5a
    assert instruction & ~(0xFFFF << 5) == 0xF2800008 | part << 21
    moved |= (instruction >> 5 & 0xFFFF) << 16 * part
assert moved == far
for near in (BASE, BASE + 400, BASE + 32 + (1 << 27) - 4, BASE + 32 - (1 << 27)):
    assert relocate(283, 32, near, 0x94000000) >> 26 == 0b100101 and branched(32) == near
assert place.free == 1024
for away in (BASE + 36 + (1 << 27), BASE + 32 - (1 << 27) - 4, 0x7FFF_0000_1230):
    assert relocate(282, 36, away, 0x14000000) >> 26 == 0b000101
    at = branched(36) - BASE
    assert at == place.free - 16 and memory[at : at + 8] == relocations.JUMP and word(at + 8, 8) == away
for kind, size, expected in ((257, 8, BASE + 8), (260, 8, -56 % 2**64), (261, 4, -56 % 2**32)):
    place.relocate(kind, 64, BASE + 8)
    assert word(64, size) == expected
try:
    place.relocate(275, 0, BASE)
    raise SystemExit("expected an error")
except InternalError as error:
    assert "275" in str(error)
"""


def run(first: int, last: int, with_codelets: bool, cache: Path) -> int:
    """Compiles the seed modules of these numbers; returns the number of functions compiled."""
    return int(cross(PROGRAM, cache, first, last, int(with_codelets)).split()[0])


def cross(program: str, cache: Path, *arguments: int) -> str:
    """Runs a program in a process that compiles for ARM; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **PROCESSOR, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_relocations(tmp_path: Path) -> None:
    """Addresses that moves, branches and jumps of ARM's instruction set lead to, decoded by its manual."""
    cross(RELOCATIONS, tmp_path)


def test_emitted_loops_compile(tmp_path: Path) -> None:
    assert run(0, 8, False, tmp_path) > 20


@pytest.mark.explore
@pytest.mark.slow
def test_codelets_compile(tmp_path: Path) -> None:
    assert run(0, 40, True, tmp_path) > 100
