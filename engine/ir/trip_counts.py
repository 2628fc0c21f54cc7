"""Trip counts of loops whose counters start at, grow by and are compared with constants."""

from __future__ import annotations

from collections.abc import Callable

from engine.frozen import frozen
from engine.ir import AnyShape, Instruction, Module, Shape
from engine.ir.opcodes import AFFINE
from engine.ir.shape import holds_all_of

Path = tuple[int, ...]
"""Indices into nested tuples, the outermost first."""
LIMIT = 2**31
MIRRORED = {"GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE"}


@frozen
class _Sum:
    """An integer: `offset`, plus the value at `element` of the loop's state unless that is None."""

    offset: int
    element: Path | None = None


Lookup = Callable[[Instruction, Path], _Sum | None]
"""The value of (a part of) a parameter."""


class TripCounts:
    """The trip counts of a module's loops."""

    def __init__(self, module: Module) -> None:
        self._counts: dict[Instruction, int | None] = {}
        self._growths: dict[tuple[Instruction, Path], int | None] = {}
        self._callers: dict[Instruction, list[Instruction]] = {}
        for instruction in module.instructions():
            for called in instruction.called:
                for parameter in called.parameters:
                    self._callers.setdefault(parameter, []).append(instruction)

    def iterations(self, loop: Instruction) -> int | None:
        """Trip count of a `while`, None if it does not follow from the program."""
        if loop not in self._counts:
            self._counts[loop] = None  # unknown where it depends on itself
            self._counts[loop] = self._iterations(loop)
        return self._counts[loop]

    def line(self, loop: Instruction, element: int) -> tuple[int, int] | None:
        """An integer element of a flat state as (value in iteration 0, growth per iteration); None if unknown."""
        if not _is_integer(loop.tuple_shapes[element]):
            return None
        return self._line(_Sum(0, (element,)), loop)

    def line_of(self, loop: Instruction, instruction: Instruction) -> tuple[int, int] | None:
        """An integer instruction of the body as (value in iteration 0, growth per iteration); None if unknown."""
        return self._line(self._sum(instruction, (), lambda _, path: _Sum(0, path)), loop)

    def _iterations(self, loop: Instruction) -> int | None:
        _, condition = loop.called
        return self._first_false(condition.root, lambda _, path: _Sum(0, path), loop)

    def _first_false(self, predicate: Instruction, lookup: Lookup, loop: Instruction) -> int | None:
        """The first iteration, from 0 on, in which a predicate is false; None if unknown."""
        if predicate.opcode == "fusion":
            inner = predicate.called[0]
            return self._first_false(inner.root, self._inside(predicate, lookup), loop)
        if predicate.opcode in AFFINE:
            return self._first_false(predicate.operands[0], lookup, loop)
        if predicate.opcode == "and":
            counts = [self._first_false(operand, lookup, loop) for operand in predicate.operands]
            known = [count for count in counts if count is not None]
            return min(known) if len(known) == len(counts) else None
        if predicate.opcode != "compare":
            return None
        left, right = (self._line(self._sum(operand, (), lookup), loop) for operand in predicate.operands)
        if left is None or right is None:
            return None
        return _crossing(left, right, predicate["direction"])

    def _line(self, term: _Sum | None, loop: Instruction) -> tuple[int, int] | None:
        """A term as (value in the first iteration, growth per iteration)."""
        if term is None or term.element is None:
            return None if term is None else (term.offset, 0)
        start, growth = self._start(loop, term.element), self._growth(loop, term.element)
        return None if start is None or growth is None else (start + term.offset, growth)

    def _growth(self, loop: Instruction, element: Path) -> int | None:
        key = (loop, element)
        if key not in self._growths:
            self._growths[key] = None  # unknown where it depends on itself
            body, _ = loop.called
            new = self._sum(body.root, element, lambda _, path: _Sum(0, path))
            self._growths[key] = new.offset if new is not None and new.element == element else None
        return self._growths[key]

    def _start(self, loop: Instruction, element: Path) -> int | None:
        """The initial value of an element of a loop's state, where it is a constant."""
        initial = self._sum(loop.operands[0], element, self._forwarded)
        return initial.offset if initial is not None and initial.element is None else None

    def _forwarded(self, parameter: Instruction, path: Path) -> _Sum | None:
        """A parameter of the computation around a loop: known if this is the body of a loop that never changes it."""
        callers = self._callers.get(parameter, [])
        if len(callers) != 1 or callers[0].opcode != "while" or self._growth(callers[0], path) != 0:
            return None
        start = self._start(callers[0], path)
        return None if start is None else _Sum(start)

    def _inside(self, fusion: Instruction, lookup: Lookup) -> Lookup:
        operands = dict(zip(fusion.called[0].parameters, fusion.operands, strict=True))
        return lambda parameter, path: self._sum(operands[parameter], path, lookup)

    def _sum(self, instruction: Instruction, path: Path, lookup: Lookup) -> _Sum | None:
        """The part of a value at `path` as a `_Sum`; None if it is not an integer of that form."""
        operands, opcode = instruction.operands, instruction.opcode
        if opcode == "parameter":
            return lookup(instruction, path)
        if opcode == "get-tuple-element":
            return self._sum(operands[0], (instruction["tuple_index"], *path), lookup)
        if opcode == "tuple":
            return self._sum(operands[path[0]], path[1:], lookup)
        if opcode == "fusion":
            return self._sum(instruction.called[0].root, path, self._inside(instruction, lookup))
        if opcode == "while":
            return self._final(instruction, path, lookup)
        if not _is_integer(instruction.shape):
            return None
        if opcode == "constant":
            return _Sum(int(instruction["literal"].reshape(-1)[0]))
        if opcode == "convert" and not holds_all_of(*(i.array_shape.element_type for i in (instruction, *operands))):
            return None  # the conversion may wrap
        if opcode in AFFINE or opcode == "convert":
            return self._sum(operands[0], (), lookup)
        if opcode in ("add", "subtract"):
            left, right = (self._sum(operand, (), lookup) for operand in operands)
            return _combined(left, right, minus=opcode == "subtract")
        return None

    def _final(self, loop: Instruction, path: Path, lookup: Lookup) -> _Sum | None:
        """The final value of an element of a loop's state."""
        growth = self._growth(loop, path)
        if growth == 0:
            return self._sum(loop.operands[0], path, lookup)
        if growth is None:
            return None
        iterations, start = self.iterations(loop), self._start(loop, path)
        return None if iterations is None or start is None else _Sum(start + growth * iterations)


def _is_integer(shape: AnyShape) -> bool:
    return isinstance(shape, Shape) and shape.elements == 1 and shape.dtype.kind in "iu"


def _combined(left: _Sum | None, right: _Sum | None, minus: bool) -> _Sum | None:
    if left is None or right is None:
        return None
    if right.element is None:
        return _Sum(left.offset + (-right.offset if minus else right.offset), left.element)
    return None if minus or left.element is not None else _Sum(left.offset + right.offset, right.element)


def _crossing(left: tuple[int, int], right: tuple[int, int], direction: str) -> int | None:
    """The first iteration in which a comparison of two lines is false; None for never, and for equalities."""
    if direction in ("GT", "GE"):
        return _crossing(right, left, MIRRORED[direction])
    if direction not in ("LT", "LE"):
        return None
    distance, growth = right[0] - left[0] + (direction == "LE"), right[1] - left[1]
    if distance <= 0:
        return 0
    iterations = -(-distance // -growth) if growth < 0 else LIMIT
    return iterations if iterations < LIMIT else None
