"""Conversions compiled for processors with fewer instructions, in a process of its own: LLVM calls nobody for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.codelets.memory import X86
from engine.codelets.processor import target
from tests.interrupting import HANGS_SECONDS

FEATURES = "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+popcnt"
PROGRAM = f"""
from engine.emit import jit
jit.host = lambda: ("haswell", "{FEATURES}")
from tests.emit.test_elementwise import ALL, test_convert
assert jit.lanes_of_f32() == 8
for source in ALL:
    test_convert(source)
print("fine")
"""


@pytest.mark.slow
@pytest.mark.skipif(not X86, reason="an x86 processor can run code for an older one")
@pytest.mark.skipif(not {"avx2", "fma", "f16c"} <= target()[1], reason="this processor has fewer instructions itself")
def test_conversions_on_a_processor_of_2013() -> None:
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "fine"
