"""A program of a file with its encoding, kept beside its object code: a process that has both lowers nothing.

The encoding is a pickle, as trusted as machine code is. It refers to object code by name, and to the arrays of the
program's file by their offsets in it; both are those of one release of the engine and of one program.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from engine.codelets.build import Codelet, GivenCodelet, Library
from engine.errors import InternalError
from engine.files.container import digest_of_file, unpack
from engine.files.signature import Signature, TensorInfo
from engine.ir.shape import Shape, shape_of
from engine.machine_code import given_objects
from engine.machine_code.costs import costs, most_winograd_outputs
from engine.machine_code.processor import may_use_matrix_registers
from engine.machine_code.sources import digest_of_engine
from engine.program.program import ComputeSet, Program
from engine.program.work.base import Encoded, Work
from engine.runtime.encoded_program import EncodedProgram

if TYPE_CHECKING:
    from engine.files import ExecutableFile


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """What a file's program needs to run; the fields are those of ExecutableFile."""

    name: str
    signature: Signature
    metadata: dict[str, str]
    roles: list[str]
    variables: dict[int, np.ndarray]
    missing_variables: dict[str, TensorInfo]
    program: EncodedProgram

    @classmethod
    def of(cls, file: ExecutableFile, program: EncodedProgram) -> Self:
        """The file's program, encoded."""
        fields = file.name, file.signature, file.metadata, file.roles, file.variables
        return cls(*fields, file.missing(), program)

    def missing(self) -> dict[str, TensorInfo]:
        """The variables that have no value in the file, by name, in the order of the parameters."""
        return self.missing_variables


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, data: np.ndarray) -> None:
        super().__init__(file, protocol=4)
        self._data = data

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Codelet):
            libraries = tuple((each.name, each.functions) for each in value.libraries)
            return "codelet", given_objects.name_of(value.path), libraries
        if isinstance(value, np.ndarray):
            offset = value.ctypes.data - self._data.ctypes.data
            if value.flags.c_contiguous and 0 <= offset <= self._data.nbytes - value.nbytes:
                return "array", offset, shape_of(value)
            return None
        from engine.emit.library import Generated, path_of

        return ("codelet", given_objects.name_of(path_of(value)), ()) if isinstance(value, Generated) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, data: bytes) -> None:
        super().__init__(file)
        self._data = data

    def persistent_load(self, reference: Any) -> Any:
        kind, *rest = reference
        return _given_codelet(*rest) if kind == "codelet" else self._array(*rest)

    def _array(self, offset: int, shape: Shape) -> np.ndarray:
        return np.frombuffer(self._data, shape.dtype, shape.elements, offset).reshape(shape.dimensions)


@cache
def _given_codelet(file: str, libraries: tuple[tuple[str, tuple[str, ...]], ...]) -> Codelet:
    """One object for each name, so that its code is linked once."""
    return GivenCodelet(file, tuple(Library(*each, _no_text) for each in libraries))


def _no_text() -> str:
    raise InternalError("Expected the object code of a library beside that of its callers. Received: none.")


def name_of(data: bytes) -> str:
    """The name of the encoding of the program in a file with this content, among the objects of a file."""
    return f"programs/{digest_of_engine()[:32]}-{digest_of_file(data)[:32]}"


def to_bytes(file: EncodedFile, data: bytes) -> bytes | None:
    """The encoding of the program in a file with the content `data`, before an executable has taken over its blocks.

    None for a program that calls the host, has queues, or draws from the random states of its process.
    """
    program = file.program
    if program.program.call is not None or program.program.queues or program.program.exceptions is not None:
        return None
    if any(_draws(block) for block in program.blocks):
        return None
    kept = replace(
        program,
        program=_without_work(program.program, ()),
        running=_without_work(program.running, program.running.compute_sets),
        blocks=[_without_addresses(block) for block in program.blocks],
    )
    made = io.BytesIO()
    content = replace(file, program=kept), _choices()
    _Pickler(made, np.frombuffer(data, np.uint8)).dump(content)
    return made.getvalue()


def find(data: bytes, origin: str) -> EncodedFile | None:
    """The program of a file with the content `data`, if its encoding was given with object code; else None.

    None, too, if the variables of this process' environment choose otherwise than those of the one that encoded it.
    Raises InvalidFile for an altered file.
    """
    kept = given_objects.find(Path(name_of(data)))
    if kept is None:
        return None
    unpack(data, origin)
    file, choices = _Unpickler(io.BytesIO(kept), data).load()
    if choices != _choices():
        return None
    for block in file.program.blocks:
        for word, table in block.tables:
            block.words[word] = table.ctypes.data
    return file


def _choices() -> tuple[object, ...]:
    """What the host's passes read besides the program."""
    return may_use_matrix_registers(), most_winograd_outputs(), costs()


def _draws(block: Encoded) -> bool:
    """Whether it has the address of a hidden state, which is that of this process."""
    from engine.runtime.generators import RNG_STATE, ROUNDING_STATE  # with definitions that a server does without

    return bool(np.isin(block.words, (RNG_STATE.address, ROUNDING_STATE.address)).any())


def _without_addresses(block: Encoded) -> Encoded:
    words = block.words.copy()
    words[[word for word, _ in block.tables]] = 0
    return replace(block, words=words)


def _without_work(program: Program, sets: Sequence[ComputeSet]) -> Program:
    """The program with what executables read of these compute sets."""
    plain = [ComputeSet(e.name, Work(), e.units, e.reads, e.writes) for e in sets]
    for each, old in zip(plain, sets, strict=True):
        each.one_worker, each.claimed, each.overwrites = old.one_worker, old.claimed, old.overwrites
        each.once = old.once
    return replace(program, compute_sets=plain)
