"""The micro kernels keep their sums in registers along k; this is where their speed comes from."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from engine.codelets import micro_kernel
from engine.machine_code.processor import X86, lanes, target


def assembly(rows: int, vectors: int, masked: bool) -> str:
    """The optimised machine code of one kernel, for this processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module()
    module.triple = llvm.get_process_triple()
    micro_kernel._kernel(module, rows, vectors, masked)
    name, features = target()
    flags = ",".join(f"+{feature}" for feature in sorted(features))
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=name, features=flags, opt=3)
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(parsed, builder)
    return machine.emit_assembly(parsed)


def inner_loop(text: str) -> str:
    """The block with the most multiply-adds."""
    return max(re.split(r"^\.LBB\w+:", text, flags=re.M), key=multiply_adds)


def multiply_adds(text: str) -> int:
    """The number of them."""
    return len(re.findall(r"vfn?madd|mulps|mulss", text))


@pytest.mark.sample(14)
@pytest.mark.skipif(not X86, reason="reads x86 assembly")
@pytest.mark.parametrize(("vectors", "rows", "masked"), micro_kernel.kernel_shapes())
def test_no_sum_is_spilled(vectors: int, rows: int, masked: bool) -> None:
    loop = inner_loop(assembly(rows, vectors, masked))
    assert multiply_adds(loop) >= rows * vectors * micro_kernel.k_unroll(vectors)
    # Of 16 registers a mask, too, takes one: a sum may then give way in the largest kernel, at the edge of a product.
    registers = 32 if "avx512f" in target()[1] else 16
    is_full = masked and rows * vectors + vectors + 2 >= registers
    assert len(re.findall(r"[xyz]mm\d+.*%rsp|%rsp.*[xyz]mm\d+", loop)) <= 2 * is_full, loop


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
