"""Compiler options besides floating-point behaviour: the order of instructions, fast math, recomputation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchedulingAlgorithm = Literal["CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"]


@dataclass(frozen=True, slots=True)
class CompilerOptions:
    """Options of IPUConfig.scheduling, IPUConfig.optimizations.math and IPUConfig.allow_recompute (Python API, 18.7).

    Args:
        scheduling: the algorithm that orders the entry's instructions (engine/passes/scheduling.py).
        lookahead_depth: number of instructions that LOOK_AHEAD looks beyond a decision.
        search_space: maximum number of orders of the next instructions that LOOK_AHEAD compares for a decision.
        fast_math: whether rewrites apply that keep a result only in exact arithmetic (engine/passes/fast_math.py).
        recompute: whether steps without pipelines recompute activations (engine/passes/recompute_activations.py).
    """

    scheduling: SchedulingAlgorithm = "CHOOSE_BEST"
    lookahead_depth: int = 5
    search_space: int = 64
    fast_math: bool = False
    recompute: bool = False


DEFAULT_OPTIONS = CompilerOptions()
