"""Encodings of programs in files: their executables give the results of the programs."""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import block
from engine.compile import build_program
from engine.files.signature import Signature
from engine.ir.builder import Builder
from engine.machine_code import given_objects
from engine.machine_code.costs import costs
from engine.machine_code.processor import X86, may_use_matrix_registers
from engine.ops.generators import RNG_STATE, ROUNDING_STATE
from engine.runtime import encoded_file
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.encode import encode_program
from engine.runtime.encoded_file import EncodedFile
from engine.runtime.encoded_program import EncodedProgram
from engine.runtime.executable import Executable
from tests.debug.helpers import run_named, same_bits
from tests.program.loop_parts import below, loop, next_count, scaled
from tests.program.programs import PROGRAMS, program_of

DATA = bytes(1 << 10)
"""Stands for the content of a file."""
MAP_32BIT = 0x40


def restored(program: EncodedProgram, monkeypatch: pytest.MonkeyPatch) -> EncodedProgram | None:
    """The program that is restored from bytes; its codelets are this process' own, with the names of the encoding."""
    own: dict[str, Any] = {}
    names = encoded_file._home

    def noted(value: Any, data: np.ndarray) -> Any:
        reference = names(value, data)
        if reference is not None and reference[0] == "codelet":
            own[reference[1]] = value
        return reference

    monkeypatch.setattr(encoded_file, "_home", noted)
    monkeypatch.setattr(encoded_file, "_given_codelet", lambda file, _: own[file])
    monkeypatch.setattr(encoded_file, "unpack", lambda data, origin: ({}, {}))
    file = EncodedFile("name", Signature((), ()), {}, [], {}, {}, program)
    content = encoded_file.to_bytes(file, DATA)
    if content is None:
        return None
    monkeypatch.setitem(given_objects._given, encoded_file.name_of(DATA), content)
    found = encoded_file.find(DATA, "a file")
    assert found is not None and own
    return found.program


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = restored(encode_program(program_of(name)), monkeypatch)
    assert made is not None and not any(each.name for each in made.program.compute_sets)
    assert same_bits(run_named(name, Executable(made)), run_named(name, Executable(program_of(name))))


@pytest.mark.parametrize("iterations", [20, 10_000])
def test_calls_are_as_brief_as_those_of_the_program(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of all iterations counts, though the encoding has no compute sets, so the same calls are long."""
    b = Builder()
    initial = [b.constant(0, "s32"), b.parameter("f32", (8,))]
    _, y = loop(b, initial, below(iterations), lambda s, e: [next_count(s, e[0]), scaled(s, e[1], 0.5)])
    program = build_program(b.module(b.tuple(y), {}), ["feed"], {})
    found = restored(encode_program(program), monkeypatch)
    assert found is not None
    compiled, loaded = Executable(program), Executable(found)
    assert loaded._work_estimate == compiled._work_estimate > 1000 * iterations
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 1_000_000)
    for executable in (compiled, loaded):
        assert (executable.brief_call([]) is None) == (iterations > 20)


def test_tables_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heap in the first 4 GiB, as in an interpreter that is not position-independent."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT * X86
    low = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE, flags=flags), np.int64, 8)
    made = block((3, low, low.ctypes.data % 64))
    program = encode_program(program_of(next(iter(PROGRAMS))))
    program.blocks[0] = Encoded.of(program.blocks[0].codelet, made)
    found = restored(program, monkeypatch)
    assert found is not None and found.blocks[0].words[1] not in (0, low.ctypes.data)
    for each in found.blocks:
        assert [each.words[word] for word, _ in each.tables] == [table.ctypes.data for _, table in each.tables]


@pytest.mark.parametrize("state", [RNG_STATE, ROUNDING_STATE])
def test_programs_that_draw_have_no_encoding(state: DeviceBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    program = encode_program(program_of(next(iter(PROGRAMS))))
    program.blocks[0].words[0] = state.address
    assert restored(program, monkeypatch) is None


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("may_use_matrix_registers", not may_use_matrix_registers()),
        ("most_winograd_outputs", 2),
        ("costs", replace(costs(), gather=9.0)),
    ],
)
def test_other_content_and_other_choices_have_no_encoding(
    name: str, other: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert restored(encode_program(program_of(next(iter(PROGRAMS)))), monkeypatch) is not None
    assert encoded_file.find(bytes([1]) * len(DATA), "a file") is None
    monkeypatch.setattr(encoded_file, name, lambda: other)
    assert encoded_file.find(DATA, "a file") is None
