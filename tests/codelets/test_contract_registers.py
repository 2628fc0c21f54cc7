"""The micro kernels keep their sums in registers along k; this is where their speed comes from."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from engine.codelets.products import micro_kernel
from engine.machine_code import optimising
from engine.machine_code.processor import X86, features_text, lanes, target

SCHEDULED_FOR = {16: ("skylake-avx512", "znver4"), 8: ("haswell", "znver3"), 4: ("nehalem",)}
"""LLVM's names of processors, by lanes: the order of instructions, and so the use of registers, depends on them."""


def assembly(kernel: micro_kernel.MicroKernel, cpu: str) -> str:
    """The machine code of one kernel, compiled as in codelets, for a processor with these instructions."""
    module = ir.Module()
    micro_kernel.define(module, kernel)
    parsed = llvm.parse_assembly(str(module))
    optimising.optimise(parsed, optimising.WRITTEN_IN_VECTORS)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features_text(), opt=optimising.WRITTEN_IN_VECTORS.level
    )
    return machine.emit_assembly(parsed)


def inner_loop(text: str) -> str:
    """The block with the most multiply-adds."""
    return max(re.split(r"^\.LBB\w+:", text, flags=re.M), key=multiply_adds)


def multiply_adds(text: str) -> int:
    """The number of multiply-adds in the text."""
    return len(re.findall(r"vfn?madd|mulps|mulss", text))


@pytest.mark.sample(14)
@pytest.mark.skipif(not X86, reason="reads x86 assembly")
@pytest.mark.parametrize("kernel", micro_kernel.kernels_of("f32"), ids=lambda kernel: kernel.name)
def test_no_sum_is_spilled(kernel: micro_kernel.MicroKernel) -> None:
    for cpu in {target()[0], *SCHEDULED_FOR[lanes()]}:
        loop = inner_loop(assembly(kernel, cpu))
        assert multiply_adds(loop) >= kernel.rows * kernel.vectors * kernel.k_unroll, cpu
        assert not re.search(r"[xyz]mm\d+.*%rsp|%rsp.*[xyz]mm\d+", loop), (cpu, loop)


@pytest.mark.parametrize("vectors", sorted(micro_kernel.row_counts()))
def test_steps_add_up(vectors: int) -> None:
    steps, counts = micro_kernel.row_steps(vectors), micro_kernel.row_counts()[vectors]
    for rows in range(1, len(steps)):
        rest = rows
        while rest:
            assert steps[rest] in counts
            rest -= steps[rest]
    assert counts[-1] == 1 and list(counts) == sorted(counts, reverse=True)
    assert micro_kernel.panel_columns() == lanes() * max(micro_kernel.row_counts())
