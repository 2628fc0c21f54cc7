"""The processor that code is compiled for: this one, unless the variables that Numba knows name another."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

X86 = platform.machine().lower() in ("x86_64", "amd64")
ARM = platform.machine().lower() in ("aarch64", "arm64")
ARCH_PRCTL, REQUEST_PERMISSION, MATRIX_DATA = 158, 0x1023, 18


@cache
def target() -> tuple[str, frozenset[str]]:
    """Its LLVM name and its features (such as "avx512f" or "neon"). NUMBA_CPU_NAME and NUMBA_CPU_FEATURES set them."""
    from llvmlite import binding  # which a process that only makes a model does without

    name = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    return name, frozenset(feature[1:] for feature in features_text().split(",") if feature.startswith("+"))


@cache
def features_text() -> str:
    """All features as LLVM takes them, with a + or a - before each."""
    from llvmlite import binding

    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is not None:
        return given
    return "" if os.environ.get("NUMBA_CPU_NAME") == "generic" else binding.get_host_cpu_features().flatten()


@cache
def lanes() -> int:
    """The float32 lanes of the widest vector register: 16, 8 or 4."""
    _, features = target()
    if {"avx512f", "avx512bw", "avx512vl"} <= features:
        return 16
    return 8 if {"avx2", "fma"} <= features else 4


@cache
def registers() -> int:
    """How many vector registers there are."""
    return 32 if lanes() == 16 or "neon" in target()[1] else 16


@cache
def masks_are_cheap() -> bool:
    """Whether a masked load is one instruction; otherwise LLVM makes a branch for each lane of it."""
    return lanes() > 4


@cache
def converts_halves() -> bool:
    """Whether conversions between f32 and f16 are known to be instructions: not for x86 processors without F16C."""
    return not X86 or bool({"f16c", "avx512fp16"} & target()[1])


def may_use_matrix_registers() -> bool:
    """Whether large products of float32 are done with matrix registers: unless SOFTWARE_IPU_AMX is 0, where there are
    any."""
    return os.environ.get("SOFTWARE_IPU_AMX", "").strip() != "0" and has_matrix_registers()


@cache
def has_matrix_registers() -> bool:
    """Whether codelets of this process may use them: the processor has them, and the system grants them."""
    if not sys.platform.startswith("linux") or not X86:
        return False
    if not {"amx-tile", "amx-bf16", "avx512f", "avx512bw"} <= target()[1]:
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, MATRIX_DATA) == 0
