"""Object code in executable memory, for the lifetime of the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from engine.machine_code import half_conversions
from engine.machine_code.elf import define, link
from engine.machine_code.keys import folder
from engine.machine_code.objects import object_at
from engine.machine_code.processor import converts_half


def load_objects(objects: list[tuple[str, bytes]]) -> dict[str, int]:
    """Loads (name, object code) pairs into executable memory; returns the address of each named function."""
    if not converts_half():
        _provide_half_conversions()
    return link([code for _, code in objects], [name for name, _ in objects])


def provide(code: bytes, names: Sequence[str]) -> None:
    """Loads object code, so that objects loaded later can call its functions of these names."""
    if not converts_half():
        _provide_half_conversions()
    _provide(code, names)


def _provide(code: bytes, names: Sequence[str]) -> None:
    for name, address in link([code], names).items():
        define(name, address)


@cache
def _provide_half_conversions() -> None:
    """Provides the functions that LLVM calls to convert 16-bit floats."""
    path = folder("objects", Path(__file__).parent) / "half_conversions.o"
    _provide(object_at(path, _half_conversions), (half_conversions.WIDEN, half_conversions.NARROW))


def _half_conversions() -> Callable[[], bytes]:
    from engine.machine_code.optimising import compile_text

    return partial(compile_text, half_conversions.TEXT)
