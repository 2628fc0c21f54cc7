"""Prints programs, for people to read: compute sets with their spans and work, and marks between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from engine.program.nest import Apply, Constant, Index, Input, Node
from engine.program.program import Address, Buffer, ComputeSet, Mark, Program, Span
from engine.program.work.base import Work
from engine.program.work.fused_loop import Count, FusedLoop, Strided


def print_program(program: Program) -> str:
    """The whole program as text; a buffer is shown with its shape wherever a span names it."""
    lines = [f"program {program.name}"]
    faces = [("feed", program.feeds), ("variable", program.variables), ("output", dict(enumerate(program.outputs)))]
    lines += [f"  {kind} {k}: {_buffer(b)}" for kind, held in faces for k, b in held.items()]
    for at, compute_set in enumerate(program.compute_sets):
        lines += [print_mark(mark) for mark in program.marks if mark.position == at]
        lines += [f"%{at} {line}" if k == 0 else line for k, line in enumerate(_compute_set(compute_set))]
    lines += [print_mark(mark) for mark in program.marks if mark.position == len(program.compute_sets)]
    return "\n".join(lines) + "\n"


def print_mark(mark: Mark) -> str:
    """A mark as one line of text."""
    condition = "" if mark.predicate is None else f" if {mark.predicate.name} is {mark.when}"
    condition += "" if mark.known is None else f" in the iterations {mark.known.values} that are {mark.when}"
    return f"{mark.kind} {mark.label}{condition}" + (f", {mark.iterations} iterations" if mark.iterations else "")


def _compute_set(compute_set: ComputeSet) -> Iterator[str]:
    units = f"{compute_set.units} unit{'' if compute_set.units == 1 else 's'}"
    yield f"{compute_set.name}: {units}{', one worker' if compute_set.one_worker else ''}"
    for what, spans in (("reads", compute_set.reads), ("writes", compute_set.writes)):
        if spans:
            yield f"    {what} {', '.join(map(_span, spans))}"
    yield from (f"    {line}" for line in _work(compute_set.work))


def _span(span: Span) -> str:
    blocks = span.partition
    return _buffer(span.buffer) + (f" by {blocks.inner * blocks.grain}" if blocks else "")


def _buffer(buffer: Buffer) -> str:
    return f"{buffer.name} {buffer.shape}"


def _work(work: Work) -> Iterator[str]:
    if isinstance(work, FusedLoop):
        yield from _fused_loop(work)
        return
    held = [(each.name, getattr(work, each.name)) for each in fields(work)]
    yield f"{work.kind} " + " ".join(f"{name}={_value(value)}" for name, value in held if not isinstance(value, Work))
    for name, value in held:
        if isinstance(value, Work):
            yield from (f"  {name}: {line}" for line in _work(value))


def _value(value: object) -> str:
    """A field as text: an address as the buffer's name and the offset, tuples and records in parentheses."""
    if isinstance(value, Address):
        moved = "" if value.moved is None else "+moved"
        return value.buffer.name + (f"+{value.offset}" if value.offset else "") + moved
    if isinstance(value, Buffer):
        return value.name
    if isinstance(value, Work):
        return "; ".join(_work(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))})"
    if is_dataclass(value):
        return f"({' '.join(_value(getattr(value, each.name)) for each in fields(value))})"
    return str(value)


def _fused_loop(loop: FusedLoop) -> Iterator[str]:
    nest = loop.nest
    loops = [f"{e}{' reduced' if reduced else ''}" for e, reduced in zip(loop.extents, nest.reduced, strict=True)]
    yield f"{loop.kind} over [{', '.join(loops)}], units of {loop.grain} along {nest.partition}"
    operands = [_operand(each) for each in loop.operands]
    for number, node in enumerate(nest.nodes):
        yield f"  %{number} = {_node(node, operands)}"
    for store in nest.stores:
        yield f"  {operands[store.access]} = %{store.node}"
    for reduction in nest.reductions:
        combine = reduction.combine if isinstance(reduction.combine, str) else "body"
        values, initial = (", ".join(f"%{n}" for n in numbers) for numbers in (reduction.values, reduction.initial))
        results = ", ".join(operands[access] for access in reduction.accesses)
        yield f"  {results} = reduce {combine} of {values} from {initial}"


def _operand(operand: Strided | Count) -> str:
    base = f"count from {operand.start}" if isinstance(operand, Count) else _value(operand.address)
    return f"{base}[{', '.join(map(str, operand.strides))}]"


def _node(node: Node, operands: list[str]) -> str:
    if isinstance(node, Input | Index):
        return operands[node.access]
    if isinstance(node, Constant):
        return f"{node.element_type} {node.value}"
    if isinstance(node, Apply):
        return f"{node.operation.opcode} {', '.join(f'%{n}' for n in node.operands)}"
    return str(node)
