"""Builds a random program: chooses operands, adds inputs and steps, and keeps track of shapes and types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.fuzz.program import Step, run_line

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33, 64)
MOST_ELEMENTS = 20_000
MOST_KNOWN = 1000.0
"""Bounds above this are treated as unknown."""
SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e4, -1e4)


class Skip(Exception):
    """An operation that does not fit here; another is tried."""


@dataclass(frozen=True)
class Node:
    """A value: its name, type and shape, and its bound (inf: unknown, or it may be NaN)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bound: float = inf

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return prod(self.shape)


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


@dataclass
class Maker:
    """Grows `inputs`, `steps` and the `nodes` that later steps may take as operands."""

    rng: np.random.Generator
    complete: bool = True
    """Whether the program returns everything it computes."""
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    special: bool = False

    def __post_init__(self) -> None:
        self.graph = tf.Graph()
        self.tensors: dict[str, tf.Tensor] = {}
        self.sizes = [int(n) for n in self.rng.choice(SIZES, 4)]
        if self.rng.random() < 0.05:
            self.sizes[0] = 0
        self.special = bool(self.rng.random() < 0.3)

    # Choices

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """Draws an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def float_type(self) -> str:
        return str(self.rng.choice(FLOATS, p=(0.7, 0.1, 0.1, 0.1)))

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        rank = self.integer(low, high)
        made = tuple(self.choose(self.sizes) for _ in range(rank))
        return made if prod(made) <= MOST_ELEMENTS // 4 else tuple(min(n, 5) for n in made)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        found = [d for d in range(rank) if self.chance(0.5)]
        return found if len(found) >= least else [self.integer(0, rank - 1)] if rank else []

    # Values

    def input(self, dtype: str, shape: tuple[int, ...], low: int = -9, high: int = 9) -> Node:
        """A new input: small integers or normally distributed floats, with a few extremes in special programs."""
        name = f"x{len(self.inputs)}"
        target = numpy_type(dtype)
        bound = 8.0
        if dtype == "bool":
            value = self.rng.random(shape) < 0.5
        elif dtype in INTEGERS:
            value = self.rng.integers(max(low, 0) if target.kind == "u" else low, high + 1, shape)
            if self.special and low < 0:
                limits = np.iinfo(target)
                extreme = self.rng.choice(np.array([limits.min, limits.max], target), shape)
                value = np.where(self.rng.random(shape) < 0.1, extreme, value.astype(target))
                bound = inf
        else:
            value = np.clip(self.rng.normal(size=shape), -4, 4)
            if self.special and self.chance(0.5):
                value = np.where(self.rng.random(shape) < 0.1, self.rng.choice(SPECIALS, shape), value)
                bound = inf
        with np.errstate(all="ignore"):
            self.inputs[name] = np.asarray(value).astype(target)
        with self.graph.as_default():
            self.tensors[name] = tf.compat.v1.placeholder(tf.as_dtype(target), shape)
        node = Node(name, dtype, shape, bound)
        self.nodes.append(node)
        return node

    def pick(self, fits: Callable[[Node], bool]) -> Node | None:
        """One of the values that fit, later ones more often."""
        found = [node for node in self.nodes if fits(node)]
        if not found:
            return None
        return found[len(found) - 1 - min(len(found) - 1, int(self.rng.exponential(2.5)))]

    def any_float(self, low: int = 0, high: int = 5) -> Node:
        """A value of a float type with `low` to `high` dimensions."""
        found = self.pick(lambda n: n.dtype in FLOATS and low <= n.rank <= high) if self.chance(0.9) else None
        return found or self.input(self.float_type(), self.shape(low, min(high, 4)))

    def any_integer(self, low: int = 0, high: int = 5) -> Node:
        found = self.pick(lambda n: n.dtype in INTEGERS and low <= n.rank <= high)
        return found or self.input(self.choose(INTEGERS), self.shape(low, min(high, 4)))

    def any_value(self, low: int = 0, high: int = 5) -> Node:
        found = self.pick(lambda n: low <= n.rank <= high)
        return found or self.input(self.float_type(), self.shape(low, min(high, 4)))

    def of(self, dtype: str, shape: tuple[int, ...]) -> Node:
        """A value of exactly this type and shape."""
        found = self.pick(lambda n: n.dtype == dtype and n.shape == shape) if self.chance(0.8) else None
        return found or self.input(dtype, shape)

    def partner(self, node: Node) -> Node:
        """A value of the same type that broadcasts with the given one."""

        def fits(other: Node) -> bool:
            if other.dtype != node.dtype:
                return False
            pairs = zip(other.shape[::-1], node.shape[::-1], strict=False)
            if any(a != b and 1 not in (a, b) for a, b in pairs):
                return False
            return prod(np.broadcast_shapes(other.shape, node.shape)) <= MOST_ELEMENTS

        found = self.pick(fits) if self.chance(0.8) else None
        if found is not None:
            return found
        kept = node.shape[self.integer(0, node.rank) :] if node.rank else ()
        return self.input(node.dtype, tuple(n if self.chance(0.7) else 1 for n in kept))

    def tame(self, node: Node) -> Node:
        """The value, or a step that bounds it."""
        if node.bound <= 8 or node.dtype not in FLOATS:
            return node
        return self.step("tame({0})", node, bound=4.0)

    def ordered(self, node: Node) -> Node:
        """The value, or a step that replaces NaN: XLA's fast minimum and maximum may or may not keep it."""
        if node.bound < inf or node.dtype not in FLOATS:
            return node
        return self.step("tf.where(tf.math.is_nan({0}), tf.ones_like({0}), {0})", node, bound=MOST_KNOWN)

    # Steps

    def step(
        self,
        template: str,
        *operands: Node,
        bound: float = inf,
        ulps: float = 0.0,
        terms: float = 0.0,
        positive: str = "",
        scale: float = 0.0,
    ) -> Node:
        """Adds a step: `template` with the operands' names; `positive` is the template whose value bounds sums."""
        names = [node.name for node in operands]
        name = f"v{len(self.steps)}"
        expression = template.format(*names)
        with self.graph.as_default():
            tensor = run_line(expression, self.tensors)
        shape = tuple(tensor.shape.as_list())
        if prod(shape) > MOST_ELEMENTS:
            raise Skip
        self.tensors[name] = tensor
        magnitudes = [f"tf.abs({n})" if node.dtype in FLOATS else n for n, node in zip(names, operands, strict=True)]
        magnitude = (positive or template).format(*magnitudes) if terms else ""
        self.steps.append(Step(name, expression, tuple(dict.fromkeys(names)), ulps, terms, magnitude, scale))
        node = Node(name, tensor.dtype.base_dtype.name, shape, bound if bound <= MOST_KNOWN else inf)
        self.nodes.append(node)
        return node
