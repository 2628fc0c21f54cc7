"""Small programs, each with one thing wrong: the debug executor finds the fault, its place and its tile."""

from __future__ import annotations

import re

import numpy as np
import pytest

from engine.codelets.language.scratch import ScratchLayout
from engine.debug import DebugExecutable
from engine.errors import DebugError, InternalError
from engine.ir import Shape
from engine.machine_code.abi import Scratch
from engine.program.program import Address, Buffer, ComputeSet, Mark, Partition, Program, Span
from engine.runtime import build_table
from engine.runtime.buffers import DeviceBuffer
from tests.debug.codelets import (
    count_up,
    fill,
    is_small,
    move,
    read_scratch,
    spoil_parameters,
    spoil_pointed,
    spoil_scratch,
)
from tests.debug.helpers import set_of

SIZE = 8
EACH = Partition(1, SIZE, 1)
ROW = Shape("f64", (SIZE,))


def program(sets: list[ComputeSet], outputs: list[Buffer], marks: list[Mark] | None = None) -> Program:
    variables = {s.buffer.index: s.buffer for each in sets for s in each.reads if s.buffer.kind == "variable"}
    return Program("wrong", sets, {}, variables, outputs, [o.shape for o in outputs], marks or [])


def filled(name: str = "x") -> tuple[Buffer, ComputeSet]:
    """An array of 0, 1, 2, ..., and the compute set that makes it."""
    buffer = Buffer(name, ROW)
    return buffer, set_of(fill, [buffer], [], SIZE, name=f"fill {name}", writes=[Span(buffer, EACH)])


def moved(
    source: Buffer, by: int, reads: Partition | None, target: str = "y", **rest: object
) -> tuple[Buffer, ComputeSet]:
    """Makes target[unit] = source[unit + by], with the reads that it declares."""
    buffer = Buffer(target, ROW)
    spans = {"reads": [Span(source, reads)], "writes": [Span(buffer, EACH)], "op_name": "model/dense/move", **rest}
    return buffer, set_of(move, [buffer, source], [by], SIZE, name=f"move to {target}", **spans)


def run(sets: list[ComputeSet], outputs: list[Buffer], tiles: int = 2, **rest: object) -> list[np.ndarray]:
    return DebugExecutable(program(sets, outputs, **rest), tiles=tiles).run(1, [], [])  # type: ignore[arg-type]


def test_nothing_wrong() -> None:
    x, makes_x = filled()
    y, makes_y = moved(x, 0, EACH)
    (result,) = run([makes_x, makes_y], [y])
    np.testing.assert_array_equal(result, np.arange(8.0))


def test_a_write_outside_its_slice() -> None:
    x, makes_x = filled()
    makes_x.writes = [Span(x, Partition(1, SIZE, 2))]  # unit u would write elements 2u and 2u + 1
    message = (
        "Expected compute set 'fill x' on tile 1 (units 4 to 7 of 8) to write only what its spans say. "
        "Received: 4.0 in element [4] of arena 'x' f64[8], in the slice of tile 0."
    )
    with pytest.raises(DebugError, match=re.escape(message)):
        run([makes_x], [x])


def test_a_write_into_what_it_only_reads() -> None:
    x, makes_x = filled()
    again = set_of(fill, [x], [], SIZE, name="again", reads=[Span(x, EACH)])
    again.work = set_of(move, [x, x], [1], SIZE).work
    with pytest.raises(
        DebugError, match=r"'again' on tile 0 .* in element \[0\] of arena 'x' f64\[8\], which it may only read"
    ):
        run([makes_x, again], [x])


def test_a_read_outside_its_slice() -> None:
    x, makes_x = filled()
    y, makes_y = moved(x, 1, EACH)
    message = (
        "compute set 'move to y' from model/dense/move on tile 0 (units 0 to 3 of 8) to read only what its spans say "
        "and what has been written. Received: a read of element [4] of arena 'x' f64[8], in the slice of tile 1; "
        "element [3] of arena 'y' f64[8] becomes nan with one poison and "
    )
    with pytest.raises(DebugError, match=re.escape(message)):
        run([makes_x, makes_y], [y])


def test_a_buffer_that_is_not_mentioned() -> None:
    x, makes_x = filled()
    y, makes_y = moved(x, 0, EACH)
    makes_y.reads = []
    with pytest.raises(
        DebugError, match=r"a read of element \[0\] of arena 'x' .* that it does not mention in its spans"
    ):
        run([makes_x, makes_y], [y])


def test_a_wrong_relocation() -> None:
    """The last unit writes behind the array, or with a smaller offset the first one before it."""
    for offset, where in ((8, "0 bytes after its end"), (-8, "8 bytes before its beginning")):
        x, makes_x = filled()
        makes_x.writes = [Span(x)]
        makes_x.work = makes_x.work.with_addresses(lambda each, offset=offset: Address(each.buffer, offset))
        with pytest.raises(DebugError, match=rf"to write inside arena 'x' f64\[8\]. Received: a write {where}"):
            run([makes_x], [x])


def test_a_read_out_of_bounds() -> None:
    x, makes_x = filled()
    y, makes_y = moved(x, 1, None)
    with pytest.raises(DebugError, match=r"on tile 1 .* a read outside arena 'x' f64\[8\]; element \[7\] of arena 'y'"):
        run([makes_x, makes_y], [y])


def test_a_read_of_unwritten_memory() -> None:
    x, y = Buffer("x", ROW), Buffer("y", ROW)
    half = set_of(fill, [x], [], SIZE // 2, name="half", writes=[Span(x, EACH)])
    y, makes_y = moved(x, 0, EACH)
    with pytest.raises(
        DebugError, match=r"a read of element \[4\] of arena 'x' f64\[8\], which has not been written in this step"
    ):
        run([half, makes_y], [y])


def test_an_unwritten_output() -> None:
    x = Buffer("x", ROW)
    idle = set_of(is_small, [x], [], SIZE, writes=[Span(x, EACH)])
    with pytest.raises(
        DebugError, match=r"Expected all of 'x' f64\[8\] to be written before an output .* element \[0\]"
    ):
        run([idle], [x])


def test_what_the_last_step_wrote_does_not_count() -> None:
    """Every other step writes nothing: the output of the step before must not pass for its output."""
    state = Buffer("state", ROW, "variable", 0)
    x, makes_x = filled()
    y, makes_y = moved(state, 0, EACH)
    executable = DebugExecutable(program([makes_x, makes_y], [x, y]))
    variable = DeviceBuffer(ROW)
    executable.run(2, [], [variable])
    executable._codelets[0] = is_small.address
    with pytest.raises(DebugError, match="'x' .* it has not been written in this step"):
        executable.run(1, [], [variable])


def test_two_writers() -> None:
    x, makes_x = filled()
    total = Buffer("total", Shape("f64", (1,)), permanent=True)
    counts = set_of(count_up, [total], [], SIZE, name="count", reads=[Span(total)], writes=[Span(total)])
    message = (
        "written by one tile at most. Received: element [0] of arena 'total' f64[1], which tiles 0 and 1 both write"
    )
    with pytest.raises(DebugError, match="a race|" + re.escape(message)):
        run([makes_x, counts], [x])
    counts.one_worker = True
    (result,) = run([makes_x, counts], [total])
    assert result == [8.0]


def test_two_tiles_write_the_same_number() -> None:
    x = Buffer("x", Shape("f64", (SIZE,)))
    same = set_of(fill, [x], [], SIZE, name="same", writes=[Span(x)])
    (result,) = run([same], [x])
    np.testing.assert_array_equal(result, np.arange(8.0))
    one = Buffer("one", Shape("f64", (1,)))
    everybody = set_of(spoil_scratch, [one], [20], 1, name="everybody", writes=[Span(one)], scratch=256)
    assert run([everybody], [one])[0] == [0.0]


def test_a_race_inside_a_compute_set() -> None:
    """Each unit takes its neighbour's old number, which the neighbour may have written over by then."""
    x, makes_x = filled()
    iterations = set_of(move, [x, x], [1], SIZE - 1, name="iteration", reads=[Span(x)], writes=[Span(x, EACH)])
    message = "a read of element [3] of arena 'x' f64[8], which another tile writes at the same time (a race)"
    with pytest.raises(DebugError, match=re.escape(message)):
        run([makes_x, iterations], [x])
    assert np.array_equal(run([makes_x, iterations], [x], tiles=1)[0], [1, 2, 3, 4, 5, 6, 7, 7])


def test_a_missing_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    x, makes_x = filled()
    y, makes_y = moved(x, 0, None)
    assert run([makes_x, makes_y], [y])[0][7] == 7.0
    real = build_table.syncs
    monkeypatch.setattr(build_table, "syncs", lambda sets, *rest: ([False] * len(sets), real(sets, *rest)[1]))
    message = (
        "Expected a sync between compute set 'fill x' and compute set 'move to y' from model/dense/move. "
        "Received: none, though tile any reads element [0] of 'x' where tile 0 wrote element [0] of 'x'."
    )
    with pytest.raises(DebugError, match=re.escape(message)):
        run([makes_x, makes_y], [y])
    z, makes_z = moved(x, 0, EACH, "z")
    assert run([makes_x, makes_z], [z])[0][7] == 7.0  # its own pieces need no sync


def test_memory_that_is_used_again_too_soon() -> None:
    x, makes_x = filled()
    y, makes_y = filled("y")
    z, makes_z = moved(x, 0, EACH, "z")
    executable = DebugExecutable(program([makes_x, makes_y, makes_z], [y, z]))
    executable.plan.offsets[y] = executable.plan.offsets[x]
    with pytest.raises(DebugError, match="which has not been written: its address in the arena holds y by now"):
        executable.run(1, [], [])


@pytest.mark.parametrize(("word", "scratch_bytes"), [(0, 256), (2, 256), (8 + 4, 32)])
def test_scratch_that_is_not_its_own(word: int, scratch_bytes: int) -> None:
    x = Buffer("x", ROW)
    spoils = set_of(spoil_scratch, [x], [word], SIZE, writes=[Span(x, EACH)], scratch=scratch_bytes)
    with pytest.raises(DebugError, match=f"to use {scratch_bytes} bytes of scratch, after the executor's own"):
        run([spoils], [x])
    spoils.work = set_of(spoil_scratch, [x], [8], SIZE, scratch=scratch_bytes).work
    assert run([spoils], [x])[0][0] == 0.0


def test_a_write_between_areas_of_scratch() -> None:
    """Each area of the second codelet's scratch is written up to its end, then one word further on."""
    layout = ScratchLayout()
    areas = [(layout.area(size), size) for size in (64, 8, 72, 64)]
    space, x = layout.space(), Buffer("x", ROW)
    for begin, size in areas[:-1]:
        for first, beyond in ((begin, 0), (begin + size - 8, 0), (begin + size, 8), (begin + size + 56, 8)):
            word = (Scratch.BYTES + first) // 8
            spoils = set_of(spoil_scratch, [x], [word], SIZE, writes=[Span(x, EACH)], scratch=space)
            if not beyond:
                assert run([spoils], [x])[0][0] == 0.0
                continue
            message = f"inside the areas of its scratch. Received: a write to byte {first}, in the gap after an area"
            with pytest.raises(DebugError, match=message):
                run([spoils], [x])


def test_a_write_into_a_table() -> None:
    x, table = Buffer("x", ROW), np.zeros(3, np.int64)
    spoils = set_of(spoil_pointed, [x], [table], SIZE, writes=[Span(x, EACH)])
    with pytest.raises(DebugError, match="Expected the tables of compute set 'made by hand' to stay as they are"):
        run([spoils], [x])


def test_a_write_into_parameters() -> None:
    x = Buffer("x", ROW)
    spoils = set_of(spoil_parameters, [x], [3], SIZE, writes=[Span(x, EACH)])
    with pytest.raises(DebugError, match="on tile 0 .* to leave its parameters alone"):
        run([spoils], [x])


def test_scratch_of_an_earlier_codelet() -> None:
    x = Buffer("x", ROW)
    reads = set_of(read_scratch, [x], [9], SIZE, writes=[Span(x, EACH)], scratch=64)
    with pytest.raises(DebugError, match="a read of scratch that it has not written itself"):
        run([reads], [x])


def test_a_branch_on_an_unwritten_predicate() -> None:
    x, makes_x = filled()
    predicate = Buffer("go on", Shape("pred"))
    idle = set_of(is_small, [predicate], [], 1, name="is small", writes=[Span(predicate)])
    marks = [Mark(1, "branch", 1, predicate), Mark(2, "label", 1)]
    with pytest.raises(DebugError, match="Expected all of 'go on' .* to be written before the branch on it"):
        run([idle, makes_x], [x], marks=marks)


def test_variables_keep_the_last_whole_step() -> None:
    state = Buffer("state", ROW, "variable", 0)
    y, makes_y = moved(state, 0, EACH)
    again = set_of(move, [state, y], [0], SIZE, name="update", reads=[Span(y, EACH)], writes=[Span(state, EACH)])
    wrong = set_of(move, [y, y], [1], SIZE, name="wrong", reads=[Span(y, EACH)], writes=[Span(y, EACH)])
    variable = DeviceBuffer(ROW)
    variable.write(np.arange(8.0))
    with pytest.raises(InternalError, match="'wrong'"):
        DebugExecutable(program([makes_y, again, wrong], [])).run(1, [], [variable])
    np.testing.assert_array_equal(variable.read(), np.arange(8.0))
