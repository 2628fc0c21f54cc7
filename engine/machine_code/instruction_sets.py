"""Instruction sets that object code for another machine may use, and the instruction sets of this machine."""

from __future__ import annotations

import re
from functools import cache

from engine.errors import ConfigurationError
from engine.machine_code.processor import ARM

V2 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt"
V3 = f"{V2},+avx,+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+movbe"
LEVELS = {
    "x86-64": ("generic", ""),
    "x86-64-v2": ("x86-64-v2", V2),
    "x86-64-v3": ("x86-64-v3", V3),
    "x86-64-v4": ("x86-64-v4", f"{V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"),
}
"""LLVM's CPU name and features, by the level of the psABI of x86-64."""
AARCH64 = ("generic", "+neon")
"""LLVM's CPU name and features of all 64-bit processors of ARM."""
_FLAGS_X86 = {"sse3": "pni", "bmi": "bmi1", "lzcnt": "abm", "sahf": "lahflm", "64bit": "lm", "crc32": "sse42"}
_FLAGS_ARM = {"neon": "asimd", "fparmv8": "fp", "lse": "atomics", "fullfp16": "asimdhp", "crc": "crc32"} | {
    "rcpc": "lrcpc",
    "dotprod": "asimddp",
    "rdm": "asimdrdm",
    "rand": "rng",
}
FLAGS = _FLAGS_ARM if ARM else _FLAGS_X86
"""Linux's names, without separators, where they differ from LLVM's."""
FOR_ALL = "NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=+neon" if ARM else "--cpu x86-64-v3, or --cpu x86-64"
OF_ALL = frozenset({"fp", "asimd"} if ARM else ())
"""Flags of all processors of the family: an emulated one shows those of the machine around it."""


def flag_of(feature: str) -> str:
    """Linux's name, without separators, of one of LLVM's features."""
    plain = re.sub(r"[._-]", "", feature)
    return FLAGS.get(plain, plain)


@cache
def flags() -> frozenset[str]:
    """The instruction sets of this machine, by Linux's names without separators."""
    with open("/proc/cpuinfo") as file:
        line = next((each for each in file if each.startswith(("flags", "Features"))), ":")
    return OF_ALL | frozenset(re.sub(r"[._-]", "", flag) for flag in line.partition(":")[2].split())


def check_flags(required: list[str], path: str) -> None:
    """Raises ConfigurationError if this machine lacks some of the instruction sets."""
    absent = sorted(set(required) - flags())
    if absent:
        raise ConfigurationError(
            f"Expected a processor with {', '.join(absent)}, for which {path} was compiled. Received: one without. "
            f"Compile it with {FOR_ALL}, which runs on all."
        )
