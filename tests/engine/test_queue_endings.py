"""Queues that end, fail or are interrupted: a call leaves variables as they were, and the host gets the reason."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.errors import FeedEnded
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.rings import AnyRing, InfeedRing, OutfeedRing
from tests.engine.queue_programs import (
    TOKEN,
    AnyExecutable,
    Drain,
    Fill,
    Values,
    elements,
    host,
    infeed,
    made,
    outfeed,
    pack,
    repeat,
    rings,
    sums,
    zeros,
)
from tests.interrupting import PATIENCE_SECONDS, interrupted_when, wait_for

SCALAR, LARGE = Shape("f32"), Shape("f32", (9, 1000))
KINDS = ["tiles", "definitions"]


@pytest.fixture(params=[1, 2, 4], autouse=True)
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", str(request.param))


class DatasetFault(Exception):
    """An error that a dataset raises."""


def run(executable: AnyExecutable, bound: dict[str, AnyRing], variables: list[DeviceBuffer], steps: int = 1) -> None:
    executable.run(steps, [], variables, queues=bound)


@pytest.mark.parametrize("shape", [SCALAR, LARGE], ids=["scalar", "large"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [None, DatasetFault("row 7 cannot be read")], ids=["exhausted", "raised"])
def test_an_infeed_that_ends_inside_a_loop(kind: str, shape: Shape, error: Exception | None) -> None:
    """A loop of ten iterations gets seven elements: it hands out seven iterations' rows, and changes no variable."""
    module = sums([shape], iterations=10)
    executable, variables, fed = made(kind, module), zeros(module), elements([shape], 7)
    variables[0].write(np.array(0.25, np.float32))
    bound = rings(executable, 2)
    infeed_ring, outfeed_ring = bound["in"], bound["out"]
    assert isinstance(infeed_ring, InfeedRing)
    assert isinstance(outfeed_ring, OutfeedRing)
    fill, drain = Fill(infeed_ring, fed, error=error, close=True), Drain(outfeed_ring)
    with pytest.raises(type(error) if error else FeedEnded):
        run(executable, bound, variables)
    fill.join()
    np.testing.assert_array_equal(drain.rows()[1], fed[0])
    assert variables[0].read() == 0.25
    assert infeed_ring.ended


@pytest.mark.parametrize("kind", KINDS)
def test_the_rings_error_itself_is_raised_and_the_next_ring_works(kind: str) -> None:
    module, fault = sums([SCALAR], iterations=3), DatasetFault("broken")
    executable, variables = made(kind, module), zeros(module)
    bound = rings(executable, 4)
    bound["in"].close(fault)
    bound["in"].close(DatasetFault("a later one"))
    for _ in range(2):
        with pytest.raises(DatasetFault) as caught:
            run(executable, bound, variables)
        assert caught.value is fault
    again = {"in": InfeedRing([SCALAR], 4), "out": bound["out"]}
    with host(again, {"in": [np.float32([1, 2, 3])]}) as drains:
        run(executable, again, variables)
        assert drains["out"].rows()[0].tolist() == [1, 3, 6]
    assert variables[0].read() == 6


@pytest.mark.parametrize("shape", [SCALAR, LARGE], ids=["scalar", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_before_the_end_count(kind: str, shape: Shape) -> None:
    """Seven elements, two a step: three steps are whole, and the fourth leaves no trace."""
    module = sums([shape], iterations=2)
    executable, variables, fed = made(kind, module), zeros(module), elements([shape], 7)
    bound = rings(executable, 3)
    infeed_ring, outfeed_ring = bound["in"], bound["out"]
    assert isinstance(infeed_ring, InfeedRing)
    assert isinstance(outfeed_ring, OutfeedRing)
    fill, drain = Fill(infeed_ring, fed, close=True), Drain(outfeed_ring)
    with pytest.raises(FeedEnded, match="Expected a queue that stays open"):
        run(executable, bound, variables, steps=5)
    fill.join()
    assert len(drain.rows()[0]) == 7
    assert variables[0].read() == fed[0][:6].sum()


def two_waits(shape: Shape) -> Module:
    """x and y take an element each, one after the other; without the second wait both would be updated in place."""
    builder = Builder()
    x, y, token = builder.parameter_of(shape), builder.parameter_of(shape), builder.parameter_of(TOKEN)
    first, after = infeed(builder, "in", [shape], token)
    new_x = builder.add(x, first[0])
    second, after = infeed(builder, "in", [shape], after)
    new_y = builder.add(y, second[0])
    return builder.module(pack(builder, [new_x, new_y, after]), {0: 0, 1: 1, 2: 2})


@pytest.mark.parametrize("shape", [SCALAR, LARGE], ids=["scalar", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_waits_twice_and_gets_one_element_changes_nothing(kind: str, shape: Shape) -> None:
    module = two_waits(shape)
    executable, variables, fed = made(kind, module), zeros(module), elements([shape], 3)
    ring = InfeedRing([shape], 4)
    ring.put(fed)
    ring.close()
    with pytest.raises(FeedEnded):
        run(executable, {"in": ring}, variables, steps=2)
    np.testing.assert_array_equal(variables[0].read(), fed[0][0])
    np.testing.assert_array_equal(variables[1].read(), fed[0][1])


@pytest.mark.parametrize("shape", [SCALAR, LARGE], ids=["scalar", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_outfeed_that_is_closed_ends_the_call(kind: str, shape: Shape) -> None:
    """The ring is closed while the program waits for space, as no thread takes the rows."""
    builder = Builder()
    total, token = builder.parameter("f32"), builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        new = inner.add(state[0], inner.constant(1.0))
        row = inner.broadcast(new, shape.dimensions, ())
        return [new, outfeed(inner, "out", [row], state[1])]

    module = builder.module(pack(builder, repeat(builder, 10, [total, token], body)), {0: 0, 1: 1})
    executable, variables = made(kind, module), zeros(module)
    ring = OutfeedRing([shape], 3)

    def close_when_full() -> None:
        wait_for(lambda: ring.waiting == 3 and (ring.device_waits > 0 or kind == "definitions"))
        ring.close()

    closer = threading.Thread(target=close_when_full)
    closer.start()
    with pytest.raises(FeedEnded):
        run(executable, {"out": ring}, variables)
    closer.join()
    rows = ring.take()
    assert rows is not None
    np.testing.assert_array_equal(rows[0].reshape(3, -1)[:, 0], [1, 2, 3])
    assert ring.take() is None
    assert variables[0].read() == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("waits_for", ["in", "out"])
@pytest.mark.parametrize("shape", [SCALAR, LARGE], ids=["scalar", "large"])
def test_ctrl_c_while_waiting(shape: Shape, waits_for: str) -> None:
    """The call ends soon, with variables as before; the next one takes the rows that are still in the rings."""
    module = sums([shape], iterations=6)
    executable, variables, fed = made("tiles", module), zeros(module), elements([shape], 12)
    bound = rings(executable, 8 if waits_for == "in" else 3)
    infeed_ring, outfeed_ring = bound["in"], bound["out"]
    assert isinstance(infeed_ring, InfeedRing)
    assert isinstance(outfeed_ring, OutfeedRing)
    infeed_ring.put([fed[0][:3]])
    if waits_for == "out":
        infeed_ring = InfeedRing([shape], 12)
        infeed_ring.put(fed)
        bound = {"in": infeed_ring, "out": outfeed_ring}

    def waits() -> bool:
        return outfeed_ring.waiting == 3 and outfeed_ring.device_waits + infeed_ring.device_waits >= 1

    with interrupted_when(waits):
        run(executable, bound, variables)
    assert variables[0].read() == 0
    rows = outfeed_ring.take()
    assert rows is not None
    np.testing.assert_array_equal(rows[1], fed[0][:3])
    if waits_for == "in":
        infeed_ring.put([fed[0][3:9]])
        with host({"out": outfeed_ring}, {}):
            run(executable, bound, variables)
        assert variables[0].read() == fed[0][3:9].sum()


def test_a_queue_that_ended_earlier_and_is_not_asked_again_ends_nothing() -> None:
    """A closed ring still serves its elements, which are enough for two steps."""
    module = sums([SCALAR], iterations=2)
    executable, variables = made("tiles", module), zeros(module)
    bound = rings(executable, 4)
    infeed_ring = bound["in"]
    assert isinstance(infeed_ring, InfeedRing)
    infeed_ring.put([np.float32([1, 2, 3, 4])])
    infeed_ring.close()
    for expected in (3, 10):
        run(executable, bound, variables)
        assert variables[0].read() == expected
    with pytest.raises(FeedEnded):
        run(executable, bound, variables)
    assert variables[0].read() == 10


def test_a_slow_host_on_either_side_loses_nothing() -> None:
    module, fed = sums([LARGE], iterations=8), elements([LARGE], 16)
    executable, variables = made("tiles", module), zeros(module)
    bound = rings(executable, 2)
    with host(bound, {"in": fed}, pause=0.03, begin=lambda: bound["in"].device_waits > 0) as drains:
        for _ in range(2):
            run(executable, bound, variables)
        rows = drains["out"].rows()
    np.testing.assert_array_equal(rows[1], fed[0])
    assert variables[0].read() == fed[0].sum()
    assert bound["in"].device_waits > 0


def test_rows_can_be_taken_while_the_program_still_runs() -> None:
    """The second element is only sent once the first one's row has come back."""
    module = sums([SCALAR], iterations=20)
    executable, variables = made("tiles", module), zeros(module)
    bound = rings(executable, 4)
    infeed_ring, outfeed_ring = bound["in"], bound["out"]
    assert isinstance(infeed_ring, InfeedRing)
    assert isinstance(outfeed_ring, OutfeedRing)
    answers = []

    def converse() -> None:
        value = 1.0
        for _ in range(20):
            infeed_ring.put([np.float32([value])])
            if not outfeed_ring.wait(PATIENCE_SECONDS):
                break
            rows = outfeed_ring.take()
            assert rows is not None
            value = float(rows[0][-1])
            answers.append(value)
        infeed_ring.close()  # nobody waits for elements that will not come

    thread = threading.Thread(target=converse)
    thread.start()
    run(executable, bound, variables)
    thread.join()
    assert answers == [2.0**k for k in range(20)]
