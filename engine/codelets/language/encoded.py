"""Work as codelets get it: the codelet and a block of words, with the addresses that it needs."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from engine.codelets.language.nest_parameters import with_parameters
from engine.codelets.language.record import ParameterBlock, Record, block, flattened
from engine.codelets.language.scratch import Range, ScratchSpace
from engine.program.buffer import Address, Buffer
from engine.program.work.base import Addressed, Work
from engine.program.work.fused_loop import Count, FusedLoop


@dataclass(frozen=True, slots=True)
class Relocation(Addressed):
    """An address that is written to word number `word` of the parameter block."""

    word: int
    address: Address


@dataclass(frozen=True, slots=True)
class Encoded:
    """A codelet and its parameter block, int64 [words], which the caller owns and relocates.

    `tables` pairs words with the arrays whose addresses they hold, `calls` words with the codelets that this one calls.
    `scratch_bytes` is the space each worker needs besides the executor's own; `scratch_gaps` are ranges of it that are
    not accessed. `generation` is a word with a number, which the host raises where others may have written a large
    variable that this work writes.
    """

    codelet: Any
    words: np.ndarray
    relocations: tuple[Relocation, ...]
    scratch_bytes: int = 0
    tables: tuple[tuple[int, np.ndarray], ...] = ()
    calls: tuple[tuple[int, Any], ...] = ()
    generation: int | None = None
    scratch_gaps: tuple[Range, ...] = ()

    @classmethod
    def of(
        cls,
        codelet: Any,
        parameters: ParameterBlock,
        scratch: int | ScratchSpace = 0,
        calls: tuple[tuple[int, Any], ...] = (),
    ) -> Self:
        """Encodes a block of records, whose relocations are addresses; `scratch` is space, or its bytes."""
        relocations = tuple(Relocation(word, address) for word, address in parameters.relocations)
        space = ScratchSpace.of(scratch)
        return cls(
            codelet, parameters.words, relocations, space.bytes, parameters.tables, calls, scratch_gaps=space.gaps
        )

    @property
    def scratch(self) -> ScratchSpace:
        """The bytes of scratch and their gaps."""
        return ScratchSpace(self.scratch_bytes, self.scratch_gaps)

    def parts(self, private: Container[Buffer] = ()) -> list[Any]:
        """Words and tables of the block as a part of another: relocated words are addresses, except in `private`
        buffers.
        """
        found: list[Any] = self.words.tolist()
        for word, table in self.tables:
            found[word] = table
        for relocation in self.relocations:
            if relocation.address.buffer not in private:
                found[relocation.word] = relocation.address
        return found

    def words_of(self, buffer: Buffer) -> list[int]:
        """The indices of the words that get addresses in a buffer."""
        return [each.word for each in self.relocations if each.address.buffer is buffer]


class HostWork(Work):
    """Work that a pass of the host puts in place of a program's, and that has a codelet of its own."""

    __slots__ = ()

    def encode(self) -> Encoded:
        """The codelet and a parameter block of its own, with zeros for addresses of buffers."""
        raise NotImplementedError


def encoded_loop(loop: FusedLoop) -> Encoded:
    """The block as `Nest` defines it, with constants of loops that differ in no more than these."""
    nest, constants = with_parameters(loop.nest)
    words = [loop.grain, *loop.extents]
    relocations = []
    for operand in loop.operands:
        if isinstance(operand, Count):
            words += (operand.start, *operand.strides, 0)
        else:
            relocations.append(Relocation(len(words), operand.address))
            words += (0, *operand.strides, operand.pitch)
    if loop.record is not None:
        relocations.append(Relocation(len(words), loop.record))
        words.append(0)
    words += constants
    return Encoded(nest, np.array(words, np.int64), tuple(relocations))


@dataclass(frozen=True, slots=True)
class CodeletWork(HostWork):
    """Work of a codelet with `parameters` (a PooledImages, ...), then `entries`: records of their tables, or words.

    Addresses are Address objects. `scratch` is space, or its bytes. `calls` pairs words with the codelets that this one
    calls, whose addresses they hold.
    """

    codelet: Any
    parameters: Record
    entries: tuple[Record | int | Address, ...] = ()
    scratch: int | ScratchSpace = 0
    calls: tuple[tuple[int, Any], ...] = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses, in the order of their words."""
        values = flattened((self.parameters, *self.entries))
        return tuple(value for value in values if isinstance(value, Address))

    def with_addresses(self, change: Callable[[Address], Address]) -> Self:
        """A copy with every address replaced by `change(address)`."""

        def changed(value: Any) -> Any:
            if isinstance(value, Record):
                return value.mapped(changed)
            return change(value) if isinstance(value, Address) else value

        return replace(self, parameters=changed(self.parameters), entries=tuple(map(changed, self.entries)))

    def encode(self) -> Encoded:
        """The block of the records."""
        return Encoded.of(self.codelet, block(self.parameters, self.entries), self.scratch, self.calls)
