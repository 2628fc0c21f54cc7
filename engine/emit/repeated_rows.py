"""Vectors of several short rows: read again and again, such as a bias of few features, or reduced column by column."""

from __future__ import annotations

from engine.codelets.language.lanes import ITEM_BYTES, Lanes
from engine.emit.loops import word
from engine.emit.reduce import combine
from engine.machine_code.llvm import ir
from engine.program.nest import Input, Nest, Reduction


def repeated_rows(lanes: Lanes, nest: Nest, bases: list[ir.Value], column: int) -> dict[int, ir.Value]:
    """Loads the vectors of periodic arrays from a column on, by the nodes that load them."""
    found: dict[int, ir.Value] = {}
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Input) and nest.accesses[node.access].inner == "periodic":
            kind = nest.accesses[node.access].element_type
            found[number] = _repeated(lanes, bases[node.access], kind, nest.period, column)
    return found


def _repeated(lanes: Lanes, row: ir.Value, element_type: str, period: int, column: int) -> ir.Value:
    """Loads a vector from a column on of the row at an address, which repeats after `period` elements.

    Nothing outside of the row is read.
    """
    builder, width = lanes.builder, lanes.width
    if period < width:
        whole = lanes.load(row, element_type, lanes.first(word(period)))
        return lanes.shuffled(whole, whole, [(column + lane) % period for lane in range(width)])
    begin = min(column, period - width)
    end = lanes.load(builder.add(row, word(begin * ITEM_BYTES[element_type])), element_type)
    if begin == column:
        return end
    again = [
        column - begin + lane if column + lane < period else width + column + lane - period for lane in range(width)
    ]
    return lanes.shuffled(end, lanes.load(row, element_type), again)


def folded_rows(lanes: Lanes, reduction: Reduction, vectors: list[ir.Value], period: int) -> list[ir.Value]:
    """Combines the rows of `period` columns that lie one after the other in vectors.

    Results are the vectors of one row; lanes beyond the last column have no meaning.
    """
    width, found = lanes.width, []
    for column in range(0, period, width):
        held: list[ir.Value] = []
        for begin in range(column, len(vectors) * width, period):
            number, lane = divmod(begin, width)
            following = vectors[min(number + 1, len(vectors) - 1)]
            row = [lanes.shuffled(vectors[number], following, range(lane, lane + width))]
            held = combine(lanes, reduction, held, row) if held else row
        found += held
    return found
