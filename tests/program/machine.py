"""Runs a program unit by unit, each buffer in memory of its own: no memory plan, no workers, no syncs to trust."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from engine.codelets.language.build import MachineCode
from engine.compile import build_program
from engine.emit.library import generated_codelet
from engine.host.passes.exchanged_products import exchange_products
from engine.host.passes.flat_loops import flatten_loops
from engine.host.passes.rows_in_lanes import put_rows_in_lanes
from engine.host.passes.transposed_weights import transpose_weights
from engine.host.passes.vector_units import fit_units
from engine.host.passes.widened_halves import widen_halves
from engine.host.select import select_convolutions
from engine.ir import Module
from engine.machine_code.abi import CODELET_TYPE, Scratch
from engine.program.program import Buffer, ComputeSet, Mark, Program
from engine.runtime.buffers import aligned_zeros
from engine.runtime.encode import encoded
from tests.codelets.guarded_scratch import GuardedScratch

GARBAGE = 0xFF
GUARD = 256
"""Bytes on either side of each buffer that no codelet may change."""
Order = Callable[[int], Iterable[int]]


class Machine:
    """A program's buffers by name, which contain garbage where the program promises nothing."""

    def __init__(self, program: Program, arguments: dict[int, np.ndarray]) -> None:
        # The host's passes that choose the type or the order of sums.
        program = transpose_weights(exchange_products(widen_halves(program)))
        program = fit_units(select_convolutions(program))
        self.program = program = put_rows_in_lanes(flatten_loops(program))
        self.blocks = {each: encoded(each.work) for each in program.compute_sets}
        blocks = self.blocks.values()
        self.memory: dict[Buffer, np.ndarray] = {}
        self.guards: dict[Buffer, list[np.ndarray]] = {}
        needed = max((b.scratch_bytes for b in blocks), default=0)
        self.guarded = GuardedScratch(needed)
        self.scratch = self.guarded.memory
        faces = program.feeds | program.variables
        for number, buffer in faces.items():
            self._place(buffer, arguments[number])
        for compute_set in program.compute_sets:
            for span in (*compute_set.reads, *compute_set.writes):
                self._place(span.buffer, span.buffer.value)
            for address in compute_set.work.addresses:
                self._place(address.buffer, address.buffer.value)
        predicates = [mark.predicate for mark in program.marks if mark.predicate is not None]
        for buffer in (*program.outputs, *predicates):
            self._place(buffer, buffer.value)
        for block in blocks:
            for word, codelet in block.calls:
                block.words[word] = self.address_of(codelet)
            for relocation in block.relocations:
                address = self.memory[relocation.address.buffer].ctypes.data + relocation.address.offset
                block.words[relocation.word] = address

    def _place(self, buffer: Buffer, value: np.ndarray | None) -> None:
        if buffer in self.memory:
            return
        guarded = aligned_zeros(max(64, buffer.shape.bytes) + 2 * GUARD)
        raw = guarded[GUARD:-GUARD]
        guarded[:GUARD] = guarded[-GUARD:] = GARBAGE
        self.guards[buffer] = [guarded[:GUARD], guarded[-GUARD:]]
        if value is not None:
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            raw[: data.size] = data
        elif not buffer.permanent:
            raw[:] = GARBAGE
        self.memory[buffer] = raw

    def address_of(self, codelet: Any) -> int:
        return codelet.address if isinstance(codelet, MachineCode) else generated_codelet(codelet).address

    def run_units(self, compute_set: ComputeSet, lo: int, hi: int) -> None:
        block = self.blocks[compute_set]
        self.guarded.blank(block.scratch)
        CODELET_TYPE(self.address_of(block.codelet))(block.words.ctypes.data, lo, hi, self.guarded.address)
        self.guarded.check(block.scratch, compute_set.name)

    def run(self, order: Order | None = None) -> list[np.ndarray]:
        """Runs a step and returns the outputs; `order` gives the order in which units run, one by one."""
        for event in self.trace():
            if isinstance(event, Mark):
                continue
            compute_set = self.program.compute_sets[event]
            if order is None:
                self.run_units(compute_set, 0, compute_set.units)
            else:
                for unit in order(compute_set.units):
                    self.run_units(compute_set, unit, unit + 1)
            self._check_guards(compute_set)
        return self.outputs()

    def trace(self) -> Iterator[int | Mark]:
        """Marks, and numbers of compute sets for the caller to run, in the order in which a step passes them."""
        marks = self.program.marks
        landing = {mark.label: place for place, mark in enumerate(marks) if mark.kind == "label"}
        at = place = 0
        while at < len(self.program.compute_sets) or place < len(marks):
            if place == len(marks) or marks[place].position > at:
                yield at
                at += 1
                continue
            mark = marks[place]
            yield mark
            taken = mark.kind != "label" and self.is_followed(mark)
            place = landing[mark.label] if taken else place + 1
            at = marks[place].position if taken else at

    def is_followed(self, mark: Mark) -> bool:
        """Whether the step continues at the mark's label; counts the iterations of a loop."""
        iterations = self.scratch[: Scratch.BYTES].view(np.int64)[Scratch.ITERATION :]
        if mark.known is not None:
            return bool(mark.known.values[iterations[mark.known.counter]]) == mark.when
        if mark.kind != "repeat":
            return mark.predicate is None or self.truth(mark.predicate) == mark.when
        iterations[mark.counter] = (iterations[mark.counter] + 1) % mark.iterations
        return bool(iterations[mark.counter])

    def truth(self, predicate: Buffer) -> bool:
        return bool(self.memory[predicate][0])

    def _check_guards(self, compute_set: ComputeSet) -> None:
        for span in (*compute_set.reads, *compute_set.writes):
            intact = all((guard == GARBAGE).all() for guard in self.guards[span.buffer])
            assert intact, f"{compute_set.name} writes outside {span.buffer.name}"

    def outputs(self) -> list[np.ndarray]:
        pairs = zip(self.program.outputs, self.program.output_shapes, strict=True)
        return [
            self.memory[buffer][: shape.bytes].view(shape.dtype).reshape(shape.dimensions).copy()
            for buffer, shape in pairs
        ]

    def variable(self, number: int) -> np.ndarray:
        buffer = self.program.variables[number]
        raw = self.memory[buffer][: buffer.shape.bytes]
        return raw.view(buffer.shape.dtype).reshape(buffer.shape.dimensions).copy()


def machine_of(module: Module, arguments: list[np.ndarray]) -> Machine:
    """The module's program with all its parameters as variables."""
    roles = ["variable"] * len(module.entry.parameters)
    return Machine(build_program(module, roles, {}, verify=True), dict(enumerate(arguments)))
