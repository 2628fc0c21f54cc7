"""HLO select-and-scatter with any bodies and element type; the bodies are called by address for each pair of elements.

The table has for each dimension [source size, source stride in bytes, operand size, operand stride in elements, window
stride, low padding, window size, window dilation, base dilation]. Padding and the gaps of a dilated base are never
selected; a window that contains nothing else drops its source element. Unit: an index of the first dimension if that
has no window, else everything.
"""

from __future__ import annotations

from math import prod

from engine.codelets.host.rows import copy_bytes, word
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import call4, load_i8
from engine.codelets.language.record import Address, Part, Record
from engine.ir.attributes import Window
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH

SCRATCH_BYTES = 8
"""Bytes of scratch for a comparator's result."""


class GeneralSelectAndScatter(Record):
    """The header of the parameters. Its first two words are the table that the comparator gets."""

    operand: Address = 0
    element_bytes: int
    source: Address = 0
    init: Address = 0  # one element
    target: Address = 0
    choice: Address = 0  # a comparator: 1 if the first of two elements is kept
    combiner: Address = 0  # a scatter's combiner
    unit_elements: int  # of the operand
    unit_source: int  # bytes of the source
    positions: int  # windows in one unit
    candidates: int  # in one window
    rank: int


class WindowedDimension(Record):
    """A dimension along which windows move; the source's stride in bytes, the operand's in elements."""

    windows: int
    source_stride: int
    size: int  # of the operand
    operand_stride: int
    step: int  # of the window
    padding_low: int
    candidates: int  # of a window
    window_dilation: int
    base_dilation: int


@inner
def _candidate(parameters: int, position: int, window_entry: int) -> int:
    """Index of the operand element, in the unit, at one position of one window; -1 for padding and gaps."""
    element = 0
    for d in range(word(parameters, GeneralSelectAndScatter.RANK) - 1, -1, -1):
        entry = parameters + 8 * (GeneralSelectAndScatter.WORDS + WindowedDimension.WORDS * d)
        windows, candidates = word(entry, WindowedDimension.WINDOWS), word(entry, WindowedDimension.CANDIDATES)
        at = position % windows * word(entry, WindowedDimension.STEP) - word(entry, WindowedDimension.PADDING_LOW)
        at += window_entry % candidates * word(entry, WindowedDimension.WINDOW_DILATION)
        position //= windows
        window_entry //= candidates
        base = word(entry, WindowedDimension.BASE_DILATION)
        if at < 0 or at % base != 0 or at // base >= word(entry, WindowedDimension.SIZE):
            return -1
        element += at // base * word(entry, WindowedDimension.OPERAND_STRIDE)
    return element


@inner
def _source_offset(parameters: int, position: int) -> int:
    offset = 0
    for d in range(word(parameters, GeneralSelectAndScatter.RANK) - 1, -1, -1):
        entry = parameters + 8 * (GeneralSelectAndScatter.WORDS + WindowedDimension.WORDS * d)
        windows = word(entry, WindowedDimension.WINDOWS)
        offset += position % windows * word(entry, WindowedDimension.SOURCE_STRIDE)
        position //= windows
    return offset


@inner
def _selected(parameters: int, first: int, position: int, answer: int) -> int:
    """Index of the operand element that one window selects, or -1."""
    chosen, choice = -1, word(parameters, GeneralSelectAndScatter.CHOICE)
    for window_entry in range(word(parameters, GeneralSelectAndScatter.CANDIDATES)):
        candidate = _candidate(parameters, position, window_entry)
        if candidate < 0:
            continue
        candidate += first
        if chosen < 0:
            chosen = candidate
        else:
            call4(choice, parameters, chosen, candidate, answer)
            if load_i8(answer) == 0:
                chosen = candidate
    return chosen


@codelet
def general_select_and_scatter(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Fills the units lo <= unit < hi with the initial value, then scatters into them."""
    size = word(parameters, GeneralSelectAndScatter.ELEMENT_BYTES)
    elements = word(parameters, GeneralSelectAndScatter.UNIT_ELEMENTS)
    target, initial = (
        word(parameters, GeneralSelectAndScatter.TARGET),
        word(parameters, GeneralSelectAndScatter.INIT),
    )
    for element in range(lo * elements, hi * elements):
        copy_bytes(target + element * size, initial, size)
    for unit in range(lo, hi):
        source = word(parameters, GeneralSelectAndScatter.SOURCE)
        source += unit * word(parameters, GeneralSelectAndScatter.UNIT_SOURCE)
        for position in range(word(parameters, GeneralSelectAndScatter.POSITIONS)):
            chosen = _selected(parameters, unit * elements, position, scratch + RESERVED_SCRATCH)
            if chosen >= 0:
                update = source + _source_offset(parameters, position)
                call4(word(parameters, GeneralSelectAndScatter.COMBINER), target + chosen * size, update, 1, 0)


def encode_general_select_and_scatter(
    operand_at: tuple[Shape, Address],
    source_at: tuple[Shape, Address],
    init: Address,
    target: Address,
    window: Window,
) -> tuple[tuple[Part, ...], int]:
    """The parts of the block and the number of units; operand and source are (shape, address)."""
    (operand, operand_address), (source, source_address) = operand_at, source_at
    item = operand.dtype.itemsize
    dimensions = list(range(operand.rank))
    first_is_free = operand.rank > 1 and window[0].is_trivial and operand.dimensions[0] > 0
    units = operand.dimensions[0] if first_is_free else 1
    walked = dimensions[1:] if first_is_free else dimensions
    table = [
        WindowedDimension(
            windows=source.dimensions[d],
            source_stride=prod(source.dimensions[d + 1 :]) * item,
            size=operand.dimensions[d],
            operand_stride=prod(operand.dimensions[d + 1 :]),
            step=window[d].stride,
            padding_low=window[d].padding_low,
            candidates=window[d].size,
            window_dilation=window[d].window_dilation,
            base_dilation=window[d].base_dilation,
        )
        for d in walked
    ]
    header = GeneralSelectAndScatter(
        operand=operand_address,
        source=source_address,
        init=init,
        target=target,
        element_bytes=item,
        unit_elements=operand.elements // max(units, 1),
        unit_source=source.bytes // max(units, 1),
        positions=prod(source.dimensions[d] for d in walked),
        candidates=prod(window[d].size for d in walked),
        rank=len(walked),
    )
    return (header, table), units if operand.elements else 0
