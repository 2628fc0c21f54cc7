"""The processor that codelets are compiled for: this one, unless the variables that Numba knows name another."""

from __future__ import annotations

import os
from functools import cache


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
