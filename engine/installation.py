"""Codelets and fused loops that an installation compiles into the cache or into a wheel, for hatch_build.py.

Codelets are those that do not depend on a model. Loops are those of recorded steps of usual models, which
tests/data/record_usual_steps.py has written to a file of engine/data.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

from engine.codelets.language.build import MachineCode, objects_of
from engine.compile import build_program
from engine.emit.library import Generated, generated_codelet
from engine.files.executable_file import from_bytes
from engine.machine_code import installed_objects
from engine.machine_code.sources import ENGINE
from engine.runtime.encode import encode_program
from engine.runtime.general_codelets import general_codelets

STEPS = ENGINE / "data" / "usual_steps.tar.xz"


def usual_steps() -> list[bytes]:
    """The recorded steps, each as an executable file; none in a Python without lzma."""
    try:
        with tarfile.open(STEPS) as archive:
            return [file.read() for file in map(archive.extractfile, archive) if file is not None]
    except tarfile.CompressionError:
        return []


def loops_of(steps: Iterable[bytes]) -> list[MachineCode]:
    """The generated codelets of steps, as this processor runs them."""
    found: list[MachineCode] = []
    for content in steps:
        file = from_bytes(content, str(STEPS))
        blocks = encode_program(build_program(file.module, file.roles, file.constants)).blocks
        every = (each for block in blocks for each in (block.codelet, *(called for _, called in block.calls)))
        found += (generated_codelet(each) for each in every if isinstance(each, Generated))
    return list(dict.fromkeys(found))


def compile_part(number: int, count: int) -> None:
    """Compiles part `number` of `count` parts of them into the cache."""
    objects_of([*general_codelets()[number::count], *loops_of(usual_steps()[number::count])])


def write_archive(folder: str) -> None:
    """Writes the object code of all for the processor that the environment names, as wheels have it."""
    installed_objects.write(Path(folder), objects_of([*general_codelets(), *loops_of(usual_steps())]))
