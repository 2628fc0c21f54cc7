"""Links object code in memory with LLVM, for the lifetime of the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import binding

from engine.machine_code.optimising import new_target_machine

_ENGINES: list[Any] = []


def define(name: str, address: int) -> None:
    """Lets object code that is linked later refer to an address by name."""
    binding.add_symbol(name, address)


def link(objects: list[bytes], names: Sequence[str]) -> dict[str, int]:
    """Links objects in executable memory; returns the addresses of the named functions."""
    machine = new_target_machine(level=2)
    empty = binding.parse_assembly("")
    empty.triple = machine.triple
    engine = binding.create_mcjit_compiler(empty, machine)
    for code in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return {name: engine.get_function_address(name) for name in names}
