"""Object code in executable memory, for the lifetime of the process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from llvmlite import binding

from engine.machine_code import half_conversions
from engine.machine_code.keys import folder
from engine.machine_code.objects import object_at
from engine.machine_code.optimising import compile_text, new_target_machine
from engine.machine_code.processor import converts_half

_ENGINES: list[Any] = []


def load_objects(objects: list[tuple[str, bytes]]) -> dict[str, int]:
    """Loads (name, object code) pairs into executable memory; returns the address of each named function."""
    if not converts_half():
        _provide_half_conversions()
    return _loaded(objects)


def provide(code: bytes, names: Sequence[str]) -> None:
    """Loads object code whose functions of these names objects loaded later can call."""
    if not converts_half():
        _provide_half_conversions()
    _provide(code, names)


def _provide(code: bytes, names: Sequence[str]) -> None:
    for name, address in _loaded([("", code)], names).items():
        binding.add_symbol(name, address)


@cache
def _provide_half_conversions() -> None:
    """Provides the functions that LLVM calls to convert 16-bit floats."""
    path = folder("objects", Path(__file__).parent) / "half_conversions.o"
    code = object_at(path, lambda: partial(compile_text, half_conversions.TEXT))
    _provide(code, (half_conversions.WIDEN, half_conversions.NARROW))


def _loaded(objects: list[tuple[str, bytes]], names: Sequence[str] = ()) -> dict[str, int]:
    """Addresses of functions in these objects: of `names`, or of the one that each object is named for."""
    machine = new_target_machine(level=2)
    empty = binding.parse_assembly("")
    empty.triple = machine.triple
    engine = binding.create_mcjit_compiler(empty, machine)
    for _, code in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return {name: engine.get_function_address(name) for name in names or [name for name, _ in objects]}
