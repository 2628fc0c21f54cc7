"""Layouts of scratch: areas do not overlap, and there is a gap after each; writes to gaps are found."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.language.scratch import GAP, LINE, ScratchLayout, ScratchSpace, after, shared
from engine.debug import DebugExecutable
from engine.errors import DebugError
from engine.host.unit_chain import ChainedWork, UnitChain
from engine.ir import Shape
from engine.program.program import Address, Buffer, ComputeSet, Partition, Program, Span
from tests.codelets.guarded_scratch import GuardedScratch
from tests.debug.codelets import fill, move, spoil_scratch
from tests.debug.helpers import Unnamed

UNITS = 8


@pytest.mark.parametrize("sizes", [(64,), (1, 64, 200, 0, 8), (0, 0), (4096, 63, 65)])
def test_areas_and_gaps(sizes: tuple[int, ...]) -> None:
    """Each byte belongs to an area or to a gap, and codelets that compute where areas are agree."""
    layout = ScratchLayout()
    begins = [layout.area(size) for size in sizes]
    space = layout.space()
    used = np.zeros(space.bytes, np.int64)
    for begin, size in zip(begins, sizes, strict=True):
        assert begin % LINE == 0
        used[begin : begin + size] += 1
    for begin, end in space.gaps:
        assert end - begin >= GAP and end % LINE == 0
        used[begin:end] += 1
    assert (used == 1).all() and space.bytes == begins[-1] + sizes[-1]
    for begin, size, following in zip(begins, sizes, begins[1:], strict=False):
        assert after.function(begin, size) == following


def test_gaps_that_several_codelets_leave() -> None:
    one, other = ScratchSpace(100, ((10, 20), (50, 60))), ScratchSpace(70, ((15, 55),))
    assert shared([one, other]) == ScratchSpace(100, ((15, 20), (50, 55)))
    assert shared([one, ScratchSpace()]) == one
    assert shared([ScratchSpace(8), ScratchSpace(8)]) == ScratchSpace(8)
    assert shared([]) == ScratchSpace()
    layout = ScratchLayout()
    layout.area(8)
    assert layout.nested(64, one, other) == 128
    assert layout.space() == ScratchSpace(292, ((8, 128), (207, 212), (242, 247)))


def test_guards_of_tests() -> None:
    layout = ScratchLayout()
    for size in (8, 16):
        layout.area(size)
    space, scratch = layout.space(), GuardedScratch(64 + 128 + 16)
    scratch.check(space)
    own = scratch.memory[64:]
    for byte, wrong in ((0, False), (7, False), (8, True), (127, True), (128, False), (143, False), (144, True)):
        scratch.blank(space)
        own[byte] = 0
        if wrong:
            with pytest.raises(AssertionError, match=f"writes to byte {byte} of scratch"):
                scratch.check(space)
        else:
            scratch.check(space)


@pytest.mark.parametrize("overrun", [None, "slice", "area of a link", "behind a link"])
def test_overruns_in_a_chain(overrun: str | None) -> None:
    """Slices of a chain count as areas, and so do the areas of its links' scratch."""
    each, row = Partition(1, UNITS, 1), Shape("f64", (UNITS,))
    x, y = Buffer("x", row), Buffer("y", row)
    layout = ScratchLayout()
    layout.area(8)
    layout.area(8)
    words = {None: 8, "slice": 8, "area of a link": 9, "behind a link": 8 + 16 + 1}
    first = CodeletWork(fill, Unnamed(), (Address(x),))
    second = CodeletWork(spoil_scratch, Unnamed(), (Address(y), words[overrun]), layout.space())
    third = CodeletWork(move, Unnamed(), (Address(y), Address(x), 0))
    ratios = (2 if overrun == "slice" else 1, 1, 1)  # of two elements, and a slice has one
    works = zip((first, second, third), ratios, strict=True)
    links = tuple(ChainedWork(work, ratio, ratio * UNITS) for work, ratio in works)
    chain = ComputeSet("chained", UnitChain(links, ((x, 8),)), UNITS, reads=[], writes=[Span(y, each)])
    executable = DebugExecutable(Program("chain", [chain], {}, {}, [y], [row], []), tiles=2)
    if overrun is None:
        assert np.array_equal(executable.run(1, [], [])[0], np.arange(UNITS))
        return
    message = "to use .* bytes of scratch" if overrun == "behind a link" else "in the gap after an area"
    with pytest.raises(DebugError, match=message):
        executable.run(1, [], [])
