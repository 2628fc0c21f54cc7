"""Encoded programs of files, kept beside their object code: a process that has both lowers nothing.

An encoding contains addresses and strides that nothing checks, so it needs the same trust as machine code. It refers to
object code by name, and to arrays by their offsets in the program's file. It is valid for one release of the engine and
one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from engine.codelets.language.build import GivenCode, Library, MachineCode
from engine.codelets.language.encoded import Encoded, Relocation
from engine.errors import InternalError
from engine.files.arrays import read_array_shape, write_array_shape
from engine.files.container import digest_of_file, unpack
from engine.files.signature import Signature, TensorInfo
from engine.ir.shape import Shape, shape_of
from engine.machine_code import given_objects
from engine.machine_code.costs import costs, most_winograd_outputs
from engine.machine_code.processor import may_use_matrix_registers
from engine.machine_code.sources import digest_of_engine
from engine.program.buffer import Address, Buffer, IterationNumber
from engine.program.memory import MemoryPlan
from engine.program.program import ComputeSet, Mark, Partition, Program, Region, Slot, Span, WorkEstimate
from engine.program.work.base import Work
from engine.runtime.encoded_program import EncodedProgram
from engine.runtime.encoded_values import Format

if TYPE_CHECKING:
    from engine.files.executable_file import ExecutableFile


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """Everything that a file's program needs to run, in the fields of ExecutableFile."""

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


FORMAT = Format(
    *(EncodedFile, Signature, TensorInfo, EncodedProgram, Program, ComputeSet, Work, WorkEstimate, Span, Partition),
    *(Slot, Buffer, Shape, Mark, Region, IterationNumber, Address, Relocation, Encoded, MemoryPlan),
)
"""Classes of the parts of a program that executables read."""


def _home(value: Any, data: np.ndarray) -> list[Any] | None:
    """Refers to a codelet by the name of its object code, or to an array by its offset in the program's file."""
    if isinstance(value, np.ndarray):
        offset = value.ctypes.data - data.ctypes.data
        if value.nbytes and value.flags.c_contiguous and 0 <= offset <= data.nbytes - value.nbytes:
            return ["array", offset, write_array_shape(shape_of(value))]
        return None
    from engine.emit.library import Generated, generated_codelet

    codelet = generated_codelet(value) if isinstance(value, Generated) else value
    if not isinstance(codelet, MachineCode):
        return None
    return ["codelet", given_objects.name_of(codelet.path), [each.name for each in codelet.libraries]]


def _at_home(reference: list[Any], data: bytes) -> Any:
    kind, *rest = reference
    if kind == "codelet":
        name, libraries = rest
        return _given_codelet(name, tuple(libraries))
    offset, shape = rest[0], read_array_shape(rest[1])
    if type(offset) is not int or not 0 <= offset <= len(data) - shape.bytes:
        raise IndexError(offset)
    return np.frombuffer(data, np.uint8, shape.bytes, offset).view(shape.dtype).reshape(shape.dimensions)


@cache
def _given_codelet(file: str, libraries: tuple[str, ...]) -> MachineCode:
    """Returns one object for each name, so that its code is linked once."""
    return GivenCode(Path(file), tuple(Library(each, _no_text) for each in libraries))


def _no_text() -> str:
    raise InternalError("Expected the object code of a library beside that of its callers. Received: none.")


def name_of(data: bytes) -> str:
    """Names the encoding of the program in a file with this content, as files of objects store it."""
    return f"programs/{digest_of_engine()[:32]}-{digest_of_file(data)[:32]}"


def to_bytes(file: EncodedFile, data: bytes) -> bytes | None:
    """Encodes the program in a file with the content `data`, before an executable has taken over its blocks.

    Returns None for a program that calls the host, has queues, or draws from the random states of its process.
    """
    program = file.program
    if program.program.call is not None or program.program.queues or program.program.exception_names:
        return None
    if any(_draws(block) for block in program.blocks):
        return None
    kept = replace(
        program,
        program=_without_work(program.program, ()),
        running=_without_work(program.running, program.running.compute_sets),
        blocks=[_without_addresses(block) for block in program.blocks],
    )
    whole = np.frombuffer(data, np.uint8)
    return FORMAT.to_bytes((replace(file, program=kept), repr(_choices())), lambda value: _home(value, whole))


def find(data: bytes, origin: str) -> EncodedFile | None:
    """Finds the encoded program of a file with the content `data` among the given objects; None if there is none.

    Returns None, too, if environment variables choose other options than when the program was encoded.
    Raises InvalidFile for an altered file.
    """
    kept = given_objects.find(Path(name_of(data)))
    if kept is None:
        return None
    unpack(data, origin)
    found, choices = FORMAT.from_bytes(kept, "a file of objects", lambda reference: _at_home(reference, data))
    if choices != repr(_choices()):
        return None
    file: EncodedFile = found
    for block in file.program.blocks:
        for word, table in block.tables:
            block.words[word] = table.ctypes.data
    return file


def _choices() -> tuple[object, ...]:
    """Options that the host's passes read besides the program."""
    return may_use_matrix_registers(), most_winograd_outputs(), costs()


def _draws(block: Encoded) -> bool:
    """Whether a block has the address of a random state, which belongs to this process."""
    from engine.ops.generators import RNG_STATE, ROUNDING_STATE  # with definitions that a server does without

    return bool(np.isin(block.words, (RNG_STATE.address, ROUNDING_STATE.address)).any())


def _without_addresses(block: Encoded) -> Encoded:
    words = block.words.copy()
    words[[word for word, _ in block.tables]] = 0
    return replace(block, words=words)


def _without_work(program: Program, sets: Sequence[ComputeSet]) -> Program:
    """Keeps only those parts of these compute sets that executables read."""
    plain = [ComputeSet(e.name, Work(), e.units, e.reads, e.writes) for e in sets]
    for each, old in zip(plain, sets, strict=True):
        each.one_worker, each.claimed, each.overwrites = old.one_worker, old.claimed, old.overwrites
        each.once = old.once
    return replace(program, compute_sets=plain)
