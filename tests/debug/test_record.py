"""The record of exchanges, compared with counts by hand."""

from __future__ import annotations

import numpy as np

from engine.compile import build_program
from engine.debug import DebugExecutable, debug_run
from engine.ir.builder import Builder
from engine.program.program import Buffer, Partition, Program, Span
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.feeds import RowFeed
from tests.debug.codelets import fill, is_small
from tests.debug.helpers import set_of
from tests.debug.test_made_wrong import EACH, ROW, SIZE, moved

HALF_TYPES = Partition(1, SIZE, SIZE // 2)


def test_who_sends_how_much_to_whom() -> None:
    """Tile t makes elements 2t and 2t + 1. All tiles read everything, then their own slices, then two tiles read
    halves.
    """
    x = Buffer("x", ROW)
    makes_x = set_of(fill, [x], [], SIZE, name="fill", writes=[Span(x, EACH)])
    y, everything = moved(x, 0, None, "y")
    z, own = moved(x, 0, EACH, "z")
    half = set_of(is_small, [x], [], 2, name="halves", reads=[Span(x, HALF_TYPES)])
    program = Program("by hand", [makes_x, everything, own, half], {}, {}, [y, z], [ROW, ROW])
    executable = DebugExecutable(program, tiles=4)
    executable.run(3, [], [])
    filling, whole, pieces, two = executable.record.supersteps[:4]
    assert (filling.exchanged, filling.runs, filling.tiles) == (0, 3, 4)
    np.testing.assert_array_equal(whole.bytes, 3 * 16 * (1 - np.eye(4, dtype=int)))
    assert whole.exchanged == 12 * 16 and pieces.exchanged == 0
    np.testing.assert_array_equal(whole.received, [48, 48, 48, 48])
    # Tiles 0 and 2 have the two units, and each already has one half of its operand.
    np.testing.assert_array_equal(two.received, [16, 0, 16, 0])
    np.testing.assert_array_equal(two.sent, [0, 16, 0, 16])
    assert filling.number < whole.number <= pieces.number <= two.number


def test_what_comes_from_the_host() -> None:
    b = Builder("step")
    x, w = b.parameter("f32", (8, 3)), b.parameter("f32", (3,))
    program = build_program(b.module(b.tuple(b.multiply(x, b.broadcast(w, (8, 3), (1,))))), ["feed", "variable"], {})
    executable = DebugExecutable(program, tiles=2)
    executable.run(2, [RowFeed(np.ones((16, 3), np.float32))], [DeviceBuffer(w.array_shape)], "all")
    by_name = {each.name: each for each in executable.record.supersteps}
    assert by_name["infeed 0"].host_bytes == 2 * 8 * 3 * 4
    (outfeed,) = (each for name, each in by_name.items() if name.startswith("outfeed"))
    assert outfeed.host_bytes == 2 * 8 * 3 * 4


def test_the_table() -> None:
    b = Builder("layer")
    x, w = b.parameter("f32", (64, 96)), b.parameter("f32", (96, 128))
    b.elementwise("tanh", b.dot(x, w))
    generator = np.random.default_rng(0)
    arguments = [generator.normal(size=s).astype(np.float32) for s in ((64, 96), (96, 128))]
    record = debug_run(b.module(), arguments, tiles=2).record
    head, columns, *lines = record.table().splitlines()
    assert head.startswith("layer: 1 step on 2 tiles, ") and head.endswith(" bytes exchanged in the last step")
    assert columns.split("  ")[0] == "superstep" and "bytes exchanged" in columns
    for line, each in zip(lines, record.supersteps, strict=True):  # names of fused compute sets have spaces
        assert line.split(maxsplit=1)[1].startswith(each.name)
    assert int(lines[0].split()[5].replace(",", "")) == record.supersteps[0].exchanged > 0
