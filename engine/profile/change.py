"""Changes of a program, and what each saves."""

from __future__ import annotations

from dataclasses import dataclass

from engine.profile.options import Assumptions


@dataclass(frozen=True, slots=True)
class Lever:
    """A change, the bytes that it saves on the fullest tile, and whether the program would then fit.

    `alone` is False for several changes that suffice only together. `how` has the lines of Python that make the
    change for a Keras model.
    """

    what: str
    saves: int
    fits: bool
    alone: bool = True
    how: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Changes with which a program is estimated; the default is none.

    `batch` is the smaller batch: the micro-batch if the change `accumulates` gradients, the batch of each replica if
    there are several `replicas`; 0 keeps the batch. `assumptions` replace those of the cost report; None keeps them.
    A change that `recomputes` activations compiles the program again, and is estimated by itself only.
    """

    batch: int = 0
    accumulates: bool = False
    replicas: int = 1
    half_precision: bool = False
    assumptions: Assumptions | None = None
    ipus: int = 1
    recomputes: bool = False
