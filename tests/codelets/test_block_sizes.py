"""Blocks of products by the size of the second-level cache: those of large caches, and the same bits with any."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.codelets.products.contract_f32 import PACKED_B_FLOATS, BlockSizes, block_sizes
from engine.machine_code.caches import VARIABLE
from tests.interrupting import HANGS_SECONDS

PROGRAM = """
import hashlib
import numpy as np
from engine.codelets.products.contract_f32 import LEAST_BYTES
from engine.compile import compile_module
from engine.ir import DotDimensionNumbers
from engine.ir.builder import Builder
from tests.engine.running import buffers, check

random = np.random.default_rng(0)
for rows, columns, k in ((200, 150, 700), (70, 40, 1030), (500, 530, 90)):
    for left, right in (((rows, k), (k, columns)), ((k, rows), (k, columns)), ((rows, k), (columns, k))):
        b = Builder()
        x, y = b.parameter("f32", left), b.parameter("f32", right)
        numbers = DotDimensionNumbers((left.index(k),), (right.index(k),))
        arrays = [random.standard_normal(each, np.float32) for each in (left, right)]
        module = b.module(b.dot(x, y, numbers))
        check(module, arrays)
        (found,) = compile_module(module, ["variable"] * 2, {}).run(1, [], buffers(arrays))
        print(hashlib.sha256(found.tobytes()).hexdigest())
print(LEAST_BYTES)
"""


@pytest.mark.parametrize("cache_bytes", [1 << 20, 1 << 21, 1 << 22])
def test_large_caches_have_the_sizes_that_were_tuned_for_avx512(cache_bytes: int) -> None:
    tuned = BlockSizes(1 << 17, group_rows=24, least_rows=384, least_size=1024, least_bytes=0, line_columns=256)
    assert block_sizes(cache_bytes, 16) == tuned


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("cache_bytes", [1 << 15, 1 << 18, 1 << 19, (1 << 20) - 1])
def test_panels_of_small_caches_leave_half(cache_bytes: int, lanes: int) -> None:
    assert 4 * block_sizes(cache_bytes, lanes).b_floats <= cache_bytes // 2


@pytest.mark.parametrize("cache_bytes", [1 << 20, 1 << 21, 1 << 30])
def test_panels_fit_in_scratch_with_short_vectors_and_large_caches(cache_bytes: int) -> None:
    sizes = block_sizes(cache_bytes, 8)
    assert sizes.b_floats <= PACKED_B_FLOATS and not sizes.line_columns


def outputs(cache_bytes: int) -> list[str]:
    variables = {**os.environ, VARIABLE: str(cache_bytes), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_bits_do_not_depend_on_the_cache() -> None:
    *small, small_bytes = outputs(1 << 16)
    *large, large_bytes = outputs(1 << 21)
    assert small_bytes != large_bytes
    assert len(small) == 9
    assert small == large
