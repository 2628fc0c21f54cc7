"""gather and scatter with any dimension numbers, also batching dimensions; dynamic slices that are clamped."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.ir import Computation, GatherDimensionNumbers, ScatterDimensionNumbers, Shape
from engine.ir.builder import Builder, binary_computation
from tests.engine.running import check
from tests.exploring import examples
from tests.opcodes.choices import Choices, whole_numbers

KINDS = ("f32", "s32", "f16", "bf16", "u8", "s64", "f64", "pred", "c64")
INDICES = ("s32", "s64", "u8", "u32", "s8")


class Window:
    """Random slices of an operand, as gather and scatter both describe them."""

    def __init__(self, c: Choices) -> None:
        self.operand = c.shape(1, 4)
        rank = len(self.operand)
        roles = [c.choose(("window", "window", "absent", "batching")) for _ in range(rank)]
        self.batching = tuple(d for d in range(rank) if roles[d] == "batching")
        self.absent = tuple(d for d in range(rank) if roles[d] == "absent")
        self.kept = [d for d in range(rank) if roles[d] == "window"]
        indexed = [d for d in range(rank) if d not in self.batching]
        self.indexed = tuple(indexed[k] for k in c.order(len(indexed))[: c.integer(0, len(indexed))])
        self.sizes = tuple(
            c.integer(0 if n == 0 else 1, n) if d in self.kept else min(n, 1) for d, n in enumerate(self.operand)
        )
        # The dimensions of the indices besides the vectors: free ones, and those shared with the operand.
        sizes = [*c.shape(0, 2), *(self.operand[d] for d in self.batching)]
        places = c.order(len(sizes))
        batch = [sizes[k] for k in places]
        free = len(sizes) - len(self.batching)
        self.vector_dimension = c.integer(0, len(batch))
        self.batch = tuple(batch)
        shifted = [places.index(free + k) for k in range(len(self.batching))]
        self.indices_batching = tuple(d + (d >= self.vector_dimension) for d in shifted)
        implicit = len(self.indexed) == 1 and self.vector_dimension == len(batch) and c.boolean()
        self.indices = self.batch if implicit else self._with_vectors(batch)
        # The places of the kept dimensions among those of the result.
        rank = len(batch) + len(self.kept)
        self.offsets = tuple(sorted(c.order(rank)[: len(self.kept)]))

    def _with_vectors(self, batch: list[int]) -> tuple[int, ...]:
        return (*batch[: self.vector_dimension], len(self.indexed), *batch[self.vector_dimension :])

    @property
    def result(self) -> tuple[int, ...]:
        inner, outer = iter(self.sizes[d] for d in self.kept), iter(self.batch)
        rank = len(self.kept) + len(self.batch)
        return tuple(next(inner) if d in self.offsets else next(outer) for d in range(rank))

    def legal(self) -> bool:
        return all(self.operand[d] > 0 for d in self.absent) and all(n > 0 for n in self.operand)

    def values(self, rng: np.random.Generator, kind: str) -> np.ndarray:
        """Indices, some of them outside."""
        low = 0 if kind[0] == "u" else -3
        return rng.integers(low, max(self.operand) + 3, self.indices).astype(Shape(kind).dtype)


@settings(max_examples=examples(120))
@given(st.data())
def test_gather(data: st.DataObject) -> None:
    c = Choices(data)
    w = Window(c)
    if not w.legal():
        return
    kind, index_kind = c.choose(KINDS), c.choose(INDICES)
    b = Builder()
    x, indices = b.parameter(kind, w.operand), b.parameter(index_kind, w.indices)
    numbers = GatherDimensionNumbers(
        *(w.offsets, w.absent, w.indexed, w.vector_dimension, w.batching, w.indices_batching)
    )
    made = b.inferred("gather", (x, indices), gather_dimension_numbers=numbers, gather_slice_sizes=w.sizes)
    assert made.array_shape.dimensions == w.result
    rng = c.random()
    check(b.module(), [whole_numbers(rng, x.array_shape), w.values(rng, index_kind)])


def decaying(kind: str) -> Computation:
    """old * 2 - update: no single operation, and the order of updates matters."""
    b = Builder("decaying")
    old, update = b.parameter(kind), b.parameter(kind)
    return b.build(b.subtract(b.add(old, old), update))


def assigning(kind: str) -> Computation:
    b = Builder("assigning")
    b.parameter(kind)
    return b.build(b.parameter(kind))


@settings(max_examples=examples(120))
@given(st.data())
def test_scatter(data: st.DataObject) -> None:
    c = Choices(data)
    w = Window(c)
    if not w.legal():
        return
    kind, index_kind = c.choose(("f32", "s32", "f64", "u8", "s64", "c64")), c.choose(INDICES)
    name = c.choose(("add", "add", "maximum", "subtract", "assign", "decaying"))
    if name == "maximum" and kind == "c64":
        name = "add"
    bodies = {"assign": assigning, "decaying": decaying}
    body = bodies[name](kind) if name in bodies else binary_computation(name, kind)
    b = Builder()
    x, indices, updates = b.parameter(kind, w.operand), b.parameter(index_kind, w.indices), b.parameter(kind, w.result)
    numbers = ScatterDimensionNumbers(
        *(w.offsets, w.absent, w.indexed, w.vector_dimension, w.batching, w.indices_batching)
    )
    b.inferred("scatter", (x, indices, updates), (body,), scatter_dimension_numbers=numbers)
    rng = c.random()
    arrays = [whole_numbers(rng, p.array_shape) for p in (x, updates)]
    check(b.module(), [arrays[0], w.values(rng, index_kind), arrays[1]])


@settings(max_examples=examples(80))
@given(st.data())
def test_dynamic_slices(data: st.DataObject) -> None:
    """Start indices may be a row of scalars of any integer type, far outside."""
    c = Choices(data)
    shape = c.shape(1, 4)
    sizes = tuple(c.integer(0, n) for n in shape)
    kind, index_kind = c.choose(KINDS), c.choose(("s32", "s64", "u32", "s8", "u64"))
    b = Builder()
    x, update = b.parameter(kind, shape), b.parameter(kind, sizes)
    starts = [b.parameter(index_kind) for _ in shape]
    seen = b.transpose(x, range(len(shape))) if c.boolean() else x
    slice_ = b.inferred("dynamic-slice", (seen, *starts), dynamic_slice_sizes=sizes)
    updated = b.inferred("dynamic-update-slice", (x, update, *starts))
    rng = c.random()
    limits = np.iinfo(Shape(index_kind).dtype)
    extremes = [limits.min, limits.max, 0, 1, 2, 3]
    values = [np.array(c.choose(extremes), Shape(index_kind).dtype) for _ in shape]
    arrays = [whole_numbers(rng, p.array_shape) for p in (x, update)]
    check(b.module(b.tuple(slice_, updated)), [*arrays, *values])
