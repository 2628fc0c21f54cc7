"""Buffers, addresses in them, and numbers that are known per iteration of a loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.ir.shape import Shape

LARGE_BYTES = 1 << 20
"""Bytes of a variable from which on executables note which of them wrote it last. Smaller ones stay in a near cache:
updating all rows of a table costs little. Chosen by hand."""


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory for one array. `kind` is "arena", "variable", "constant", "feed" or "queue" (the ring bound for a call).

    `index` is the entry parameter's number for a variable or a feed; `value` the contents of a constant.
    `permanent` arena buffers keep their contents from step to step, `carried` ones from iteration to iteration of a
    loop that updates them.
    """

    name: str
    shape: Shape
    kind: str = "arena"
    index: int = -1
    value: np.ndarray | None = None
    permanent: bool = False
    carried: bool = False

    @property
    def is_state(self) -> bool:
        """Whether a step, or an iteration of a loop, finds in it what the one before has stored."""
        return self.kind == "variable" or self.carried


@dataclass(frozen=True, slots=True)
class IterationNumber:
    """A number per iteration of a loop whose trip count is known; each worker counts iterations in `counter`."""

    counter: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`offset` bytes after the start of a buffer, plus `moved` bytes that each iteration of a loop has of its own."""

    buffer: Buffer
    offset: int = 0
    moved: IterationNumber | None = None
