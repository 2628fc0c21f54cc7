"""Buffers, addresses in them, and numbers that are known per iteration of a loop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from engine.frozen import frozen
from engine.ir.shape import Shape

LARGE_BYTES = 1 << 20
"""Fewest bytes of a variable for which executables note which of them wrote it last. A smaller variable stays in a near
cache, where updating all rows of a table costs little."""


class Role(StrEnum):
    """The use that a program's author makes of a variable."""

    WEIGHT = "weight"
    STATISTIC = "statistic"
    SLOT = "slot"
    GRADIENT_SUM = "sum of gradients"
    COUNTER = "counter"
    SEED = "seed"
    METRIC = "metric"


@frozen
class Label:
    """A variable's name and role as its program's author sees it, recorded by the front end.

    `path` is the variable's name, as in sequential/dense/kernel, or an optimizer and its slot, as in adam/momentum;
    `owner` the path of the weight that a slot or a sum of gradients belongs to. A counter belongs to an optimizer.
    """

    path: str
    role: Role | None = None
    owner: str = ""

    def __str__(self) -> str:
        if self.role is Role.GRADIENT_SUM:
            return f"{Role.GRADIENT_SUM} of {self.owner}"
        return f"{self.path} slot of {self.owner}" if self.role is Role.SLOT else self.path


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory for one array. `kind` is "arena", "variable", "constant", "feed" or "queue" (the ring bound for a call).

    `index` is the entry parameter's number for a variable or a feed; `value` the contents of a constant.
    `label` describes a variable, where the front end has recorded it.
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
    label: Label | None = None

    @property
    def is_state(self) -> bool:
        """Whether the buffer passes a value from one step, or from one iteration of a loop, to the next."""
        return self.kind == "variable" or self.carried


@frozen
class IterationNumber:
    """A number per iteration of a loop whose trip count is known; each worker counts iterations in `counter`."""

    counter: int
    values: tuple[int, ...]


@frozen
class Address:
    """`offset` bytes after the start of a buffer, plus `moved` bytes that each iteration of a loop has of its own."""

    buffer: Buffer
    offset: int = 0
    moved: IterationNumber | None = None
