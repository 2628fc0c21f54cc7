"""Conversion of modules to JSON values and arrays, and back with all checks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeVar

from engine.errors import InvalidFile
from engine.files.arrays import ArrayReader, ArrayWriter, read_array_shape, write_array_shape
from engine.files.attributes import a_list, an_object, integer, read_attribute, text, write_attribute
from engine.ir import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from engine.resource_limits import above, current_limits

Item = TypeVar("Item")
LITERAL = "literal"
MOST_DEPTH = 16
"""Most levels of nested tuples."""


def write_module(module: Module, arrays: ArrayWriter) -> dict[str, Any]:
    """The module as JSON values; literals go to `arrays`. Raises InternalError for an attribute that files lack."""
    computations = list(module.computations())
    numbers = {id(computation): number for number, computation in enumerate(computations)}
    origins: dict[str, int] = {"": 0}
    written = [_write_computation(each, numbers, origins, arrays) for each in computations]
    aliases = sorted(module.aliases.items())
    return {"name": module.name, "origins": list(origins), "computations": written, "aliases": list(map(list, aliases))}


def _write_computation(
    computation: Computation, numbers: dict[int, int], origins: dict[str, int], arrays: ArrayWriter
) -> dict[str, Any]:
    offsets = {instruction: offset for offset, instruction in enumerate(computation.instructions)}
    instructions = []
    for each in computation.instructions:
        attributes = {
            name: arrays.add(value) if name == LITERAL else write_attribute(name, value)
            for name, value in each.attributes.items()
        }
        operands, called = [offsets[o] for o in each.operands], [numbers[id(c)] for c in each.called]
        origin = origins.setdefault(each.op_name, len(origins))
        instructions.append([each.name, each.opcode, _write_shape(each.shape), operands, attributes, called, origin])
    return {"name": computation.name, "root": offsets[computation.root], "instructions": instructions}


def _write_shape(shape: AnyShape) -> list[Any]:
    """A list that begins with a string for an array, a list of lists for a tuple."""
    return write_array_shape(shape) if isinstance(shape, Shape) else [_write_shape(each) for each in shape.elements]


def unnamed(module: Module) -> Module:
    """The module without its own and its entry's names, which contain the tracers' counts of traces."""
    entry = Computation("main", module.entry.instructions, module.entry.root)
    return Module("module", entry, module.aliases)


def read_module(value: Any, arrays: ArrayReader) -> Module:
    """Reads a module, not verified yet. Raises InvalidFile for values that are no module."""
    fields = _fields(value, ("name", "origins", "computations", "aliases"))
    origins = [text(each) for each in a_list(fields["origins"])]
    computations: list[Computation] = []
    extents: dict[int, _Extent] = {}
    for each in a_list(fields["computations"]):
        computation = _read_computation(each, computations, origins, arrays)
        extents[id(computation)] = _extent(computation, extents)
        computations.append(computation)
    if not computations:
        raise InvalidFile("Expected a module with computations. Received: none.")
    aliases: dict[int, int] = {}
    for pair in a_list(fields["aliases"]):
        if len(a_list(pair)) != 2:
            raise InvalidFile(f"Expected pairs of parameter and result. Received: {pair!r:.80}.")
        aliases[integer(pair[0])] = integer(pair[1])
    return Module(text(fields["name"]), computations[-1], aliases)


def _read_computation(value: Any, callees: list[Computation], origins: list[str], arrays: ArrayReader) -> Computation:
    fields = _fields(value, ("name", "root", "instructions"))
    instructions: list[Instruction] = []
    for each in a_list(fields["instructions"]):
        if len(a_list(each)) != 7:
            raise InvalidFile(f"Expected the 7 parts of an instruction. Received: {each!r:.80}.")
        name, opcode, shape, operands, attributes, called, origin = each
        instructions.append(
            Instruction(
                *(text(name), text(opcode), _read_shape(shape)),
                tuple(map(partial(_one_of, instructions), a_list(operands))),
                {n: arrays.read(v) if n == LITERAL else read_attribute(n, v) for n, v in an_object(attributes).items()},
                tuple(map(partial(_one_of, callees), a_list(called))),
                _one_of(origins, origin),
            )
        )
    return Computation(text(fields["name"]), instructions, _one_of(instructions, fields["root"]))


class _Extent(NamedTuple):
    """The instructions of a computation whose calls are inlined, and the levels of those calls."""

    instructions: int
    levels: int


def _extent(computation: Computation, extents: dict[int, _Extent]) -> _Extent:
    """The extent of a computation, from the extents of its callees. Raises ResourceLimit if it is above the limits."""
    callees = [extents[id(callee)] for each in computation.instructions for callee in each.called]
    instructions = len(computation.instructions) + sum(each.instructions for each in callees)
    levels = 1 + max((each.levels for each in callees), default=0)
    most = current_limits()
    if instructions > most.instructions:
        raise above("instructions", f"{most.instructions} instructions, with calls inlined", f"{instructions}")
    if levels > most.levels:
        raise above("levels", f"{most.levels} levels of calls", f"{levels}")
    return _Extent(instructions, levels)


def _one_of(items: list[Item], number: Any) -> Item:
    """The item of a number; raises InvalidFile for none. References go backwards only, so there are no cycles."""
    if integer(number) >= len(items):
        raise InvalidFile(f"Expected a number below {len(items)}. Received: {number}.")
    return items[number]


def _read_shape(value: Any, depth: int = 0) -> AnyShape:
    if a_list(value) and type(value[0]) is str:
        return read_array_shape(value)
    if depth > MOST_DEPTH:
        raise InvalidFile(f"Expected tuples nested at most {MOST_DEPTH} deep. Received: deeper ones.")
    return TupleShape(tuple(_read_shape(each, depth + 1) for each in value))


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if type(value) is not dict or set(value) != set(names):
        raise InvalidFile(f"Expected an object with {', '.join(names)}. Received: {value!r:.80}.")
    return value
