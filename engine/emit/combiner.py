"""A scatter's body as machine code: `void combine(i64 target, i64 source, i64 count, i64 others)`.

It combines `count` neighbouring updates of each operand into as many neighbouring elements. Target and source are the
addresses for operand 0. For several operands, `others` is the address of a table with two words for each operand: the
addresses of its target and of its updates. All operands have the same dimensions, so operand 0's offset is theirs too.

A sort's comparator as machine code: `void compare(i64 table, i64 i, i64 j, i64 answer)`.

It compares elements i and j of all operands. The table holds an address and a step in bytes for each operand, and
the answer, 1 or 0, is written to a byte.
"""

from __future__ import annotations

from engine.codelets.language.lanes import I64, ITEM_BYTES, Lanes
from engine.emit.loops import Carried, begun, lane_loop, last_lanes, word
from engine.emit.reduce import apply_body
from engine.machine_code.llvm import ir
from engine.program.nest import Argument, Combiner, Comparator


def emit_combiner(combiner: Combiner, name: str, width: int) -> str:
    """Writes the LLVM IR text of a module with the one function `name`."""
    builder = begun(name)
    target, source, count, others = builder.function.args
    lanes = Lanes(builder, width)
    types = combiner.element_types
    positions = _positions(builder, types, target, others, 0) + _positions(builder, types, source, others, 1)

    def body(index: ir.Value, _: int, mask: ir.Value | None, __: Carried) -> Carried:
        at = [
            builder.add(p, builder.mul(index, word(ITEM_BYTES[t]))) for p, t in zip(positions, types * 2, strict=True)
        ]
        values = [lanes.load(a, t, mask) for a, t in zip(at, types * 2, strict=True)]
        for result, a, t in zip(apply_body(lanes, combiner.body, values), at[: len(types)], types, strict=True):
            lanes.store(result, a, t, mask)
        return []

    lane_loop(lanes, word(0), count, last_lanes(lanes, word(0), count), [], body)
    builder.ret_void()
    return str(builder.module)


def _positions(
    builder: ir.IRBuilder, types: tuple[str, ...], first: ir.Value, others: ir.Value, column: int
) -> list[ir.Value]:
    """Computes the address for each operand from the address for operand 0."""
    if len(types) == 1:
        return [first]
    table = builder.inttoptr(others, I64.as_pointer())
    starts = [builder.load(builder.gep(table, [word(2 * k + column)])) for k in range(len(types))]
    index = builder.udiv(builder.sub(first, starts[0]), word(ITEM_BYTES[types[0]]))
    return [builder.add(start, builder.mul(index, word(ITEM_BYTES[t]))) for start, t in zip(starts, types, strict=True)]


def emit_comparator(comparator: Comparator, name: str) -> str:
    """Writes the LLVM IR text of a module with the one function `name`."""
    builder = begun(name)
    table, i, j, answer = builder.function.args
    lanes, body = Lanes(builder, 1), comparator.body
    words = builder.inttoptr(table, I64.as_pointer())

    def element(argument: Argument) -> ir.Value:
        operand, second = divmod(argument.number, 2)
        row, step = (builder.load(builder.gep(words, [word(2 * operand + k)])) for k in range(2))
        address = builder.add(row, builder.mul(j if second else i, step))
        return lanes.load(address, argument.element_type)

    arguments = {node.number: element(node) for node in body.nodes if isinstance(node, Argument)}
    values = [arguments.get(number, word(0)) for number in range(1 + max(arguments, default=-1))]
    (result,) = apply_body(lanes, body, values)
    lanes.store(result, answer, "pred")
    builder.ret_void()
    return str(builder.module)
