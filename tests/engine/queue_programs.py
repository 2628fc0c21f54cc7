"""Programs with infeeds and outfeeds, and ways to run them with a host that feeds and drains."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from engine.compile import compile_module
from engine.errors import FeedEnded
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import INFEED, OUTFEED
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from engine.runtime.rings import AnyRing, InfeedRing, OutfeedRing
from tests.engine.running import buffers, random_array
from tests.interrupting import PATIENCE_SECONDS, wait_for

TOKEN = Shape("s32")
Values = list[Instruction]
Body = Callable[[Builder, Values], Values]
AnyExecutable = Executable | EvaluatedExecutable


def part(builder: Builder, value: Instruction, index: int) -> Instruction:
    assert isinstance(value.shape, TupleShape)
    return builder.instruction("get-tuple-element", value.shape.elements[index], (value,), tuple_index=index)


def pack(builder: Builder, values: Values) -> Instruction:
    return builder.instruction("tuple", TupleShape(tuple(v.shape for v in values)), values)


def infeed(
    builder: Builder, queue: str, shapes: Sequence[Shape], token: Instruction, declared: bool = True
) -> tuple[Values, Instruction]:
    """The leaves of the next element, and the token after them."""
    call = builder.instruction(
        *("custom-call", TupleShape((*shapes, TOKEN)), (token,)),
        custom_call_target=INFEED,
        backend_config=json.dumps({"queue": queue}),
        custom_call_has_side_effect=declared,
    )
    *leaves, after = (part(builder, call, k) for k in range(len(shapes) + 1))
    return leaves, after


def outfeed(builder: Builder, queue: str, leaves: Values, token: Instruction, declared: bool = True) -> Instruction:
    """The token after the outfeed."""
    return builder.instruction(
        *("custom-call", TOKEN, (*leaves, token)),
        custom_call_target=OUTFEED,
        backend_config=json.dumps({"queue": queue}),
        custom_call_has_side_effect=declared,
    )


def repeat(builder: Builder, iterations: int | Instruction, initial: Values, body: Body) -> Values:
    """A loop with its own counter; `body` maps a state to the next one."""
    limit = builder.constant(iterations, "s32") if isinstance(iterations, int) else iterations
    state = [builder.constant(0, "s32"), limit, *initial]
    shape = TupleShape(tuple(v.shape for v in state))
    inner, test = Builder("body"), Builder("condition")
    parts = [part(inner, p, k) for p in [inner.parameter_of(shape)] for k in range(len(state))]
    following = [inner.add(parts[0], inner.constant(1, "s32")), parts[1], *body(inner, parts[2:])]
    tested = test.parameter_of(shape)
    condition = test.build(test.compare(part(test, tested, 0), part(test, tested, 1), "LT"))
    called = (inner.build(pack(inner, following)), condition)
    loop = builder.instruction("while", shape, (pack(builder, state),), called)
    return [part(builder, loop, k) for k in range(2, len(state))]


def conditional(builder: Builder, predicate: Instruction, values: Values, yes: Body, no: Body) -> Values:
    shape = TupleShape(tuple(v.shape for v in values))
    branches = []
    for name, body in (("yes", yes), ("no", no)):
        inner = Builder(name)
        parameter = inner.parameter_of(shape)
        branches.append(inner.build(pack(inner, body(inner, [part(inner, parameter, k) for k in range(len(values))]))))
    operands = (predicate, *[pack(builder, values)] * 2)
    chosen = builder.instruction("conditional", branches[0].root.shape, operands, branches)
    assert isinstance(chosen.shape, TupleShape)
    return [part(builder, chosen, k) for k in range(len(chosen.shape.elements))]


def add_all(builder: Builder, total: Instruction, leaf: Instruction) -> Instruction:
    """The total plus the sum of a leaf's elements."""
    rank = leaf.array_shape.rank
    summed = builder.reduce(leaf, builder.constant(0.0), tuple(range(rank))) if rank else leaf
    return builder.add(total, summed)


def sums(shapes: Sequence[Shape], iterations: int, steps_in_loop: bool = True) -> Module:
    """Builds sums of f32 elements in a variable, enqueued in each iteration with the first leaf."""
    builder = Builder()
    total, token = builder.parameter("f32"), builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", shapes, state[1])
        new = state[0]
        for leaf in leaves:
            new = add_all(inner, new, leaf)
        return [new, outfeed(inner, "out", [new, leaves[0]], after)]

    results = repeat(builder, iterations, [total, token], body) if steps_in_loop else body(builder, [total, token])
    return builder.module(pack(builder, results), {0: 0, 1: 1})


def elements(shapes: Sequence[Shape], count: int, seed: int = 0) -> list[np.ndarray]:
    """`count` elements as a leaf of [count, ...] each; floats hold integers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-9, 10, (count, *s.dimensions)).astype(s.dtype)
        if s.element_type != "pred"
        else random_array(rng, s.with_dimensions((count, *s.dimensions)))
        for s in shapes
    ]


class Drain:
    """A host thread that takes all rows of an outfeed until the ring is closed."""

    def __init__(self, ring: OutfeedRing, pause: float = 0.0) -> None:
        self.ring, self.pause = ring, pause
        self.taken: list[list[np.ndarray]] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while (rows := self.ring.take()) is not None:
            if len(rows[0]):
                self.taken.append(rows)
            time.sleep(self.pause)
            self.ring.wait(1.0)

    def rows(self) -> list[np.ndarray]:
        """All rows, leaf by leaf; closes the ring."""
        self.ring.close()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        empty = [np.zeros((0, *s.dimensions), s.dtype) for s in self.ring.shapes]
        return [np.concatenate([empty[k], *(rows[k] for rows in self.taken)]) for k in range(len(empty))]


class Fill:
    """A host thread that puts rows, a few at a time, and closes the ring afterwards if asked to.

    It begins when a condition holds.
    """

    def __init__(
        self,
        ring: InfeedRing,
        rows: Sequence[np.ndarray],
        at_once: int = 3,
        pause: float = 0.0,
        error: BaseException | None = None,
        close: bool = False,
        begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self.ring, self.pieces, self.pause, self.error, self.close = ring, list(rows), pause, error, close
        self.at_once, self.begin = at_once, begin
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        wait_for(self.begin)
        for start in range(0, len(self.pieces[0]), self.at_once):
            with suppress(FeedEnded):  # the program has failed
                self.ring.put([leaf[start : start + self.at_once] for leaf in self.pieces])
            time.sleep(self.pause)
        if self.close or self.error is not None:
            self.ring.close(self.error)

    def join(self) -> None:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()


def made(kind: str, module: Module) -> AnyExecutable:
    """Compiles for tiles, or by definitions; all parameters are variables."""
    roles = ["variable"] * len(module.entry.parameters)
    return compile_module(module, roles, {}, verify=True) if kind == "tiles" else EvaluatedExecutable(module, roles, {})


def rings(executable: AnyExecutable, slots: int) -> dict[str, AnyRing]:
    """A ring for each queue of an executable."""
    return {
        name: (InfeedRing if queue.direction == "infeed" else OutfeedRing)(queue.shapes, slots)
        for name, queue in executable.queues.items()
    }


def zeros(module: Module) -> list[DeviceBuffer]:
    return buffers([np.zeros(p.array_shape.dimensions, p.array_shape.dtype) for p in module.entry.parameters])


@contextmanager
def host(
    rings_of: Mapping[str, AnyRing],
    fed: Mapping[str, Sequence[np.ndarray]],
    pause: float = 0.0,
    begin: Callable[[], bool] = lambda: True,
) -> Iterator[dict[str, Drain]]:
    """Threads that feed the infeeds, once a condition holds, and drain the outfeeds."""
    drains = {n: Drain(r, pause) for n, r in rings_of.items() if isinstance(r, OutfeedRing)}
    fills = [Fill(r, fed[n], pause=pause, begin=begin) for n, r in rings_of.items() if isinstance(r, InfeedRing)]
    try:
        yield drains
    except BaseException:
        for ring in rings_of.values():
            ring.close()
        raise
    finally:
        for drain in drains.values():
            drain.ring.close()
        for fill in fills:
            fill.join()


def exchange(
    kind: str, module: Module, fed: Mapping[str, Sequence[np.ndarray]], slots: int = 2, steps: int = 1
) -> tuple[dict[str, list[np.ndarray]], list[np.ndarray]]:
    """One call with a host on the other side: the rows of each outfeed, and the variables afterwards."""
    executable, variables = made(kind, module), zeros(module)
    bound = rings(executable, slots)
    with host(bound, fed) as drains:
        executable.run(steps, [], variables, queues=bound)
        rows = {name: drain.rows() for name, drain in drains.items()}
    return rows, [v.read() for v in variables]
