"""The processor that code is compiled for: this one, unless Numba's environment variables name another."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

from engine.errors import ConfigurationError
from engine.machine_code import given_objects


def _machine() -> str:
    """The family of processors, which Numba's environment variables may choose to be another than this machine's."""
    if "+neon" in os.environ.get("NUMBA_CPU_FEATURES", "").split(","):
        return "aarch64"
    return "x86_64" if os.environ.get("NUMBA_CPU_NAME", "").startswith("x86-64") else platform.machine()


MACHINE = _machine()
X86, ARM = MACHINE == "x86_64", MACHINE == "aarch64"
ARCH_PRCTL, REQUEST_PERMISSION, MATRIX_DATA = 158, 0x1023, 18


@cache
def target() -> tuple[str, frozenset[str]]:
    """LLVM's CPU name and features (such as "avx512f", "neon"). NUMBA_CPU_NAME and NUMBA_CPU_FEATURES override them."""
    if not given_objects.has_compiler():
        return given_objects.origin().cpu, _enabled(given_objects.origin().features)
    from llvmlite import binding  # not needed by a process that only builds a model

    name = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    return name, _enabled(features_text())


def _enabled(features: str) -> frozenset[str]:
    return frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))


@cache
def features_text() -> str:
    """All features in LLVM's format, each prefixed with + or -."""
    from llvmlite import binding

    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is not None:
        return given
    return "" if os.environ.get("NUMBA_CPU_NAME") == "generic" else binding.get_host_cpu_features().flatten()


@cache
def lanes() -> int:
    """The number of float32 lanes of the widest vector register: 16, 8 or 4."""
    _, features = target()
    if {"avx512f", "avx512bw", "avx512vl"} <= features:
        return 16
    return 8 if {"avx2", "fma"} <= features else 4


@cache
def registers() -> int:
    """The number of vector registers."""
    return 32 if lanes() == 16 or ARM else 16


@cache
def masks_are_cheap() -> bool:
    """Whether a masked load is one instruction; otherwise LLVM emits a branch for each of its lanes."""
    return lanes() > 4


@cache
def converts_half() -> bool:
    """Whether f32-f16 conversions are known to be instructions: not on x86 processors without F16C."""
    return not X86 or bool({"f16c", "avx512fp16"} & target()[1])


@cache
def rounds_to_bf16() -> bool:
    """Whether the rounding of f32 to bf16 is an instruction. It takes denormal numbers as zero."""
    return {"avx512bf16", "avx512vl"} <= target()[1]


@cache
def multiplies_bf16_pairs() -> bool:
    """Whether two products of bf16 take as long as one of float32: on AMD from Zen 4 on; on Intel they take longer."""
    name, features = target()
    return name.startswith("znver") and "avx512bf16" in features and lanes() == 16


@cache
def widens_beside_products() -> bool:
    """Whether kernels should widen 16-bit floats beside multiply-adds, not before them: not with AVX-512 on Intel.

    AVX2 was measured on a Zen 5. Other processors with AVX2 have no more instructions in this way than before it.
    """
    return (lanes() == 8 or (lanes() == 16 and target()[0] == "znver5")) and converts_half()


def may_use_matrix_registers() -> bool:
    """Whether large float32 products use matrix registers: where there are any, unless SOFTWARE_IPU_AMX is 0."""
    return is_on("SOFTWARE_IPU_AMX") and has_matrix_registers()


@cache
def has_matrix_registers() -> bool:
    """Whether codelets of this process may use matrix registers: the processor has and the system grants them."""
    if not X86 or not {"amx-tile", "amx-bf16", "avx512f", "avx512bw"} <= target()[1]:
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, MATRIX_DATA) == 0


def is_on(variable: str) -> bool:
    """Whether a part of the engine is switched on: its variable, which is read at each call, is not 0.

    Raises ConfigurationError for values other than 0 and 1: "false" must not count as "on" in silence.
    """
    text = os.environ.get(variable, "").strip()
    if text not in ("", "0", "1"):
        raise ConfigurationError(
            f"Expected 0 or 1 in {variable}. Received: {text!r}. Nearest legal value: 0 to turn it off; "
            f"unset it otherwise."
        )
    return text != "0"
