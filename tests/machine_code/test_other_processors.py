"""Code for processors with fewer instructions, which NUMBA_CPU_NAME and _FEATURES set in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.machine_code.processor import X86, target
from tests.interrupting import HANGS_SECONDS

FEATURES = "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+popcnt"
OF_2013 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": FEATURES}
GENERIC = {"NUMBA_CPU_NAME": "generic"}
CONVERSIONS = """
from engine.machine_code.processor import lanes, target
from tests.emit.test_elementwise import FLOATS, INTEGERS, test_convert
from tests.exploring import sample
assert lanes() == {lanes}, target()
for source in (*FLOATS, *sample((*INTEGERS, "pred"), 1)):
    test_convert(source)
print("fine")
"""
PROGRAM = """
import numpy as np
from engine.machine_code.processor import features_text, lanes, target
from engine.ir.builder import Builder
from tests.engine.running import check

assert (target()[0], features_text(), lanes()) == ("generic", "", 4)
b = Builder()  # a product, which is a codelet's, and a fused nest, of halves
x, y = b.parameter("f16", (33, 40)), b.parameter("f16", (40, 21))
check(b.module(b.elementwise("tanh", b.dot(x, y))), tolerance=2e-3)
b = Builder()
halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
check(b.module(b.convert(b.parameter("f16", halves.shape), "f32")), [halves])
b = Builder()
rng = np.random.default_rng(0)
every = halves.astype(np.float32)
near = [np.nextafter(every, np.float32(way)) for way in (-np.inf, np.inf)]
halfway = (every[:31743] + every[1:31744]) / 2
random = rng.integers(0, 1 << 32, 1 << 16, np.uint64).astype(np.uint32).view(np.float32)
values = np.concatenate([every, *near, halfway, -halfway, random, np.float32([65519.99, 65520, 1e38, np.inf, np.nan])])
module = b.module(b.convert(b.parameter("f32", values.shape), "f16"))
check(module, [values])
print("fine")
"""


def run(program: str, variables: dict[str, str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in OF_2013:
        environment.pop(name, None)
    result = subprocess.run(
        *([sys.executable, "-c", program],),
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "fine"


pytestmark = pytest.mark.skipif(not X86, reason="an x86 processor can run code for an older one")


@pytest.mark.slow
@pytest.mark.skipif(not {"avx2", "fma", "f16c"} <= target()[1], reason="this processor has fewer instructions itself")
def test_conversions_on_a_processor_of_2013() -> None:
    run(CONVERSIONS.format(lanes=8), OF_2013)


@pytest.mark.explore
@pytest.mark.slow
def test_conversions_on_any_processor() -> None:
    run(CONVERSIONS.format(lanes=4), GENERIC)


def test_codelets_and_fused_loops_are_for_the_same_processor() -> None:
    run(PROGRAM, GENERIC)
