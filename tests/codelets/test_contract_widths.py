"""Contractions, pooling and convolutions compiled for processors with narrower vectors, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.machine_code.processor import X86, target
from tests.interrupting import HANGS_SECONDS

NARROW = {
    8: ("haswell", "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2,+f16c"),
    4: ("x86-64", "+sse2"),
}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import test_contract as t
import test_pool_gradient as pooling
from tests.codelets import test_contract_half as halves, test_narrow_products as narrow, test_tail_columns as tails
from engine.machine_code import processor
from engine.codelets.convolutions.cook_toom import LARGE, SMALL
from engine.host.convolutions import winograd
from engine.host.convolutions.winograd_sets import Tiling
from tests.exploring import sample, seed
from tests.lower import test_convolution_lanes as convolutions, test_few_features as few
from tests.program import test_depthwise_windows as windows, test_grouped_windows as grouped
from tests.program import test_winograd as transformed
from tests.program import test_winograd_gradient as gradients

lanes = processor.lanes()
assert lanes == int(sys.argv[2])
random = np.random.default_rng(0)
for transposed_a, transposed_b in sample([(a, b) for a in (False, True) for b in (False, True)], 2):
    for rows, columns, k in ((1, 1, 1), (7, 5, 17), (61, 65, 300), (49, 200, 33), (512, 40, 9)):
        flags = dict(transposed_a=transposed_a, transposed_b=transposed_b, gap=rows % 3)
        t.check(t.matrices(random, rows, columns, k, **flags), columns_per_unit=128, rows_per_unit=48)
for columns in sample(tails.COLUMNS, 3):
    for flags in ((False, False), (True, False), (False, True)):
        tails.test_products_are_those_of_the_definition(columns, *flags)
for start in range(5):
    t.check(t.random_tables(np.random.default_rng(start)))
t.check(t.transposed_runs(random, 50, 33, 3, 20))
if lanes > 4 and seed() is not None:  # older processors have no conversions of halves
    for flags in ((False, True), (True, False)):
        halves.test_blocks(*flags, None)
    halves.test_elements_read_many_times(40)
for channels in sample((1, 3, 6, 20), 1):
    pooling.test_usual_pooling(channels)
for gradient in ("none", "kernel", "input"):
    for features, results in sample(((1, 6), (6, 16), (3, 5)), 1):
        convolutions.check(convolutions.layer(features, results, 14, 5, gradient), tolerance=1e-4)
for kind in ("f16", "bf16"):
    pooling.test_pooling_of_16_bit_floats(kind)
for case in narrow.CASES:
    for adds in (0, 1):
        narrow.test_products_are_those_of_the_definition(*case, adds)
winograd.WORTH = np.inf
for module, made, backward in (
    (transformed.convolution(2, 5, 4, 19, 24), transformed, False),
    (gradients.gradient(2, 5, 4, 16, 24), gradients, True),
):
    winograd._tilings = lambda *_, backward=backward: [Tiling(SMALL, backward=backward)]
    assert made.is_transformed(made.made(module))
    convolutions.check(module, tolerance=1e-4)
winograd._tilings = lambda *_: [Tiling(LARGE)]
convolutions.check(transformed.convolution(2, 5, 4, 19, 24, kind="bf16"), tolerance=4.5e-3)
winograd._tilings = lambda *_: [Tiling(LARGE, backward=True)]
convolutions.check(gradients.gradient(2, 5, 4, 16, 24, kind="bf16"), tolerance=4.5e-3)
for make in (windows.forward, windows.by_input, windows.by_kernel):
    for sizes in sample(windows.SHAPES, 2):
        windows.test_results_are_those_of_the_definition(make, sizes)
for make in (grouped.forward, grouped.by_kernel):
    convolutions.check(make(2, 4, 2, 13, 17, 3, 1, 2), tolerance=3e-5)
module = few.module_of(4, 24, 1, [30, 37], (few.SAME, few.SAME))
assert few.works(module)
convolutions.check(module, tolerance=3e-5)
print("fine")
"""


@pytest.mark.explore
@pytest.mark.skipif(not X86, reason="an x86 processor can run code for an older one")
@pytest.mark.parametrize("lanes", [4, 8])
def test_narrow_vectors(lanes: int) -> None:
    if lanes == 8 and not {"avx2", "fma"} <= target()[1]:
        pytest.skip("this processor has no AVX2")
    name, features = NARROW[lanes]
    variables = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(lanes)]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "fine"
