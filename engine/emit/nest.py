"""What a generated codelet computes: a loop nest over arrays, as plain data from which its code and cache key follow.

Dimensions are loops in storage order; the last one runs in SIMD lanes. Each array is reached by an address and a
stride in bytes for each dimension, both known only at run time, so that one codelet serves every shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.emit.registry import Operation


@dataclass(frozen=True, slots=True)
class Access:
    """An array in a nest: its element type and how it moves along the last dimension.

    `inner` is "contiguous" (the next lane is the next element), "splat" (all lanes see one element) or "strided".
    """

    element_type: str
    inner: str


@dataclass(frozen=True, slots=True)
class Input:
    """A node that loads from access number `access`."""

    access: int


@dataclass(frozen=True, slots=True)
class Index:
    """A node that counts: access number `access` holds the start as its address and the steps as its strides."""

    access: int
    element_type: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar in all lanes; `value` is the Python number's repr, so that NaN and -0 make good keys."""

    element_type: str
    value: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A node that applies an operation to earlier nodes."""

    operation: Operation
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """In a reduction's body: accumulator or value number `number`."""

    number: int
    element_type: str


Node = Input | Index | Constant | Apply | Argument


@dataclass(frozen=True, slots=True)
class Store:
    """Node number `node` written to access number `access` at every point."""

    node: int
    access: int


@dataclass(frozen=True, slots=True)
class Body:
    """A reduction's body of any kind: nodes over 2n arguments (accumulators, then values), and its n results."""

    nodes: tuple[Node, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Values combined over the reduced dimensions, from the initial nodes on, and stored once.

    `combine` is the opcode of a body that is one associative operation, or a Body. `element_types` are those of the
    accumulators; an access may hold a narrower one, to which the result is rounded once.
    """

    combine: str | Body
    values: tuple[int, ...]
    initial: tuple[int, ...]
    element_types: tuple[str, ...]
    accesses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """A generated codelet. Equal nests share machine code.

    The parameter block, all int64: grain; the extent of each dimension; then for each access its address, its
    stride in bytes along each dimension and the pitch between the partial results of units.
    Units split dimension `partition` into pieces of `grain`; where that dimension is reduced, each unit writes a
    partial result of its own, without the initial value.
    """

    reduced: tuple[bool, ...]
    partition: int
    accesses: tuple[Access, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...] = ()
    reductions: tuple[Reduction, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.reduced)

    @property
    def splits_reduction(self) -> bool:
        return self.reduced[self.partition]

    def access_word(self, access: int) -> int:
        """Where an access's words begin in the parameter block."""
        return 1 + self.rank + access * (self.rank + 2)

    @property
    def parameter_words(self) -> int:
        return self.access_word(len(self.accesses))
