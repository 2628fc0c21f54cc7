"""Versions, processor, instruction sets and cores, without importing TensorFlow."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from engine.machine_code import processor
from engine.machine_code.cores import allowed_cores, full_cores, quota
from engine.runtime.threads import worker_count

PACKAGES = ("tensorflow", "keras", "tf-keras", "numba", "llvmlite", "numpy")
SETS = {
    **{"avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx512f": "AVX-512", "avx512bf16": "AVX-512 BF16"},
    **{"avx512fp16": "AVX-512 FP16", "amx-bf16": "AMX BF16", "neon": "NEON", "sve": "SVE"},
}
"""LLVM's names of the instruction sets that code generation asks for, and the usual ones."""


def listing() -> Iterator[str]:
    """Lines `name value`; raises ConfigurationError for a wrong NUMBA_NUM_THREADS."""
    name, features = processor.target()
    sets = ", ".join(text for feature, text in SETS.items() if feature in features) or "none of those it looks for"
    matrices = "used for large products" if processor.may_use_matrix_registers() else "not used"
    yield f"software-ipu  {_version('software-ipu')}"
    yield f"Python        {platform.python_version()}, {', '.join(f'{each} {_version(each)}' for each in PACKAGES)}"
    yield f"system        {platform.system()} {platform.machine()}"
    yield f"processor     {_model_name()} (LLVM: {name})"
    yield f"instructions  {sets}; {processor.lanes()} float32 lanes; matrix registers are {matrices}"
    yield f"cores         {_cores()}; {worker_count()} workers at most"


def _cores() -> str:
    limit = f", a quota of {quota()}" if quota() < len(allowed_cores()) else ""
    fast = f", {len(full_cores())} that are equally fast and share nothing" if full_cores() != allowed_cores() else ""
    return f"{len(allowed_cores())} of {os.cpu_count()} for this process{limit}{fast}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _model_name() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or "unknown"
