"""The codelets that can be compiled before a machine's first model: all or many models need them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from engine.codelets.ahead import MATRIX_REGISTERS, MODULES
from engine.codelets.language.build import Codelet
from engine.machine_code.processor import may_use_matrix_registers


def general_codelets() -> list[Codelet]:
    """The named codelets of MODULES, and those for matrix registers where there are any."""
    return codelets_of((*MODULES, MATRIX_REGISTERS) if may_use_matrix_registers() else MODULES)


def codelets_of(modules: Iterable[str]) -> list[Codelet]:
    """The codelets that modules define by name."""
    found = (each for name in modules for each in vars(importlib.import_module(name)).values())
    return list(dict.fromkeys(each for each in found if isinstance(each, Codelet)))
