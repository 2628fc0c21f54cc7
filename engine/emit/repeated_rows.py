"""Vectors of rows that are read again and again, such as a bias of few features that is added to each pixel."""

from __future__ import annotations

from engine.codelets.language.lanes import I1, ITEM_BYTES, Lanes
from engine.emit.loops import word
from engine.machine_code.llvm import ir
from engine.program.nest import Input, Nest


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

    Each repetition takes one masked load; lanes outside the mask are not read.
    """
    builder, width = lanes.builder, lanes.width
    vector, lane = lanes.constant(element_type, 0), 0
    while lane < width:
        count = min(period - column, width - lane)
        mask = ir.Constant(lanes.of(I1), [lane <= each < lane + count for each in range(width)])
        address = builder.add(row, word((column - lane) * ITEM_BYTES[element_type]))
        vector = builder.select(mask, lanes.load(address, element_type, mask), vector)
        lane, column = lane + count, 0
    return vector
