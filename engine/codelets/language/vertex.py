"""Vertices of users: their parameters, and codelets made of their code in a module."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b85decode, b85encode
from functools import cache
from typing import Any, NamedTuple

from engine.codelets.language.build import FOLDER, GivenCode, MachineCode
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.lanes import HALF_TYPES
from engine.codelets.language.record import Address, Record, block
from engine.machine_code import keys
from engine.program.work.custom_calls import VertexCallWork

NUMBA_TYPES = {name: kind for name, kind in NUMBA_NAMES.items() if name not in HALF_TYPES} | {"pred": "boolean"}
"""The Numba types of elements, without 16-bit floats, for which Numba has no arithmetic."""
ENTRY = "vertex"
"""The name of the codelet in its bitcode."""
RAISES = "vertex_raises"
"""The function that the codelet calls where the user's function has raised an exception; it does not exist."""


class VertexArgument(NamedTuple):
    """An array of a vertex as its function gets it; `split` is as in engine.ir.vertices."""

    element_type: str
    rank: int
    split: str
    writable: bool


class VertexBlock(Record):
    """Parameters of a vertex, before a VertexArray for each operand and result."""

    rows: int
    grain: int  # rows of a unit


class VertexArray(Record):
    """An array, before its dimensions in a full unit; the first dimension differs in the last unit."""

    address: Address
    stride: int  # bytes between the slices of two units


def encoded_code(bitcode: bytes) -> str:
    """Bitcode as text."""
    return b85encode(zlib.compress(bitcode, 9)).decode()


@cache
def vertex_codelet(code: str) -> MachineCode:
    """The codelet of some code: equal code has one codelet in a process, and one file on disk."""
    digest = hashlib.sha256(code.encode()).hexdigest()[:32]
    path = keys.folder("codelets", FOLDER) / f"vertex-{digest}.o"
    return GivenCode(path, prepare=lambda symbol: lambda: object_of(zlib.decompress(b85decode(code)), symbol))


def object_of(bitcode: bytes, symbol: str) -> bytes:
    """The object code of bitcode for this processor."""
    from engine.codelets.language.linking import PIPELINE
    from engine.machine_code import optimising

    module = optimised(bitcode, symbol)
    return optimising.object_of(module, PIPELINE)


def optimised(bitcode: bytes, symbol: str = ENTRY) -> Any:
    """The bitcode after the passes for this processor, with its codelet named `symbol`."""
    from llvmlite import binding

    from engine.codelets.language.linking import PIPELINE
    from engine.machine_code import optimising

    module = binding.parse_bitcode(bitcode, binding.create_context())
    module.get_function(ENTRY).name = symbol
    optimising.optimise(module, PIPELINE)
    return module


def encoded_vertex(work: VertexCallWork) -> Encoded:
    """The header, then each array with its dimensions."""
    entries: list[VertexArray | int] = []
    for each in work.arrays:
        entries += [VertexArray.of(each), *each.dimensions]
    return Encoded.of(vertex_codelet(work.code), block(VertexBlock.of(work), entries))
