"""Rings whose rows the device reads in place, in the host's arrays."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import ConfigurationError
from engine.ir import Shape
from engine.ir.builder import Builder
from engine.runtime.row_rings import RowRing
from tests.engine.queue_programs import TOKEN, Values, elements, host, infeed, made, outfeed, pack, repeat, rings, zeros

SHAPES = {
    "scalar": [Shape("f32")],
    "small": [Shape("f32", (3, 5)), Shape("s8", (6,))],
    "large": [Shape("f32", (12, 1025)), Shape("s32", (12,)), Shape("f16", (2, 9001))],
}


@pytest.mark.sample(9)
@pytest.mark.parametrize("workers", ["1", "2", "4"])
@pytest.mark.parametrize("order", ["adjoining", "permuted", "both"])
@pytest.mark.parametrize("kind", ["tiles", "definitions"])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_rows_are_those_of_the_arrays(
    shapes: list[Shape], kind: str, order: str, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    builder, count, generator = Builder(), 11, np.random.default_rng(0)
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", shapes, state[0])
        return [outfeed(inner, "out", leaves, after)]

    module = builder.module(pack(builder, repeat(builder, count, [token], body)), {0: 0})
    arrays = elements(shapes, count)
    parts = [shape.dimensions[0] if shape.rank else 1 for shape in shapes]
    numbers = [np.arange(count * n).reshape(count, n) for n in parts]
    for rows in numbers:  # of every second element, or of all, the parts do not adjoin
        chosen = {"adjoining": slice(0), "both": slice(None, None, 2), "permuted": slice(None)}[order]
        rows[chosen] = generator.permuted(rows[chosen], axis=1)
    executable = made(kind, module)
    ring = RowRing(shapes, parts, arrays, 3)
    bound = {**rings(executable, 2), "in": ring}
    addresses = [
        array.ctypes.data + rows * (shape.bytes // n)
        for array, rows, shape, n in zip(arrays, numbers, shapes, parts, strict=True)
    ]
    with host(bound, {"in": addresses}) as drains:
        executable.run(1, [], zeros(module), queues=bound)
        received = drains["out"].rows()
    for values, array, rows, shape, n in zip(received, arrays, numbers, shapes, parts, strict=True):
        wanted = array.reshape(count * n, -1)[rows].reshape(count, *shape.dimensions)
        np.testing.assert_array_equal(values, wanted)


def test_leaves_must_divide_into_their_parts() -> None:
    for count in (0, 4):
        with pytest.raises(ConfigurationError, match=r"equal parts.*Received: \[\d\] parts of \(f32\[6\]\)"):
            RowRing([Shape("f32", (6,))], [count], [], 2)
