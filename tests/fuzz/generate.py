"""Programs drawn from a seed."""

from __future__ import annotations

import numpy as np

from tests.fuzz import elementwise, moves, sums
from tests.fuzz.maker import FLOATS, Maker, Skip
from tests.fuzz.program import Program

FAMILIES = {**elementwise.FAMILIES, **moves.FAMILIES, **sums.FAMILIES}
LEAST, MOST = 5, 50


def generate(seed: int) -> Program:
    """Generates 5 to 50 steps. Two programs of three return all values, the others only those without readers."""
    m = Maker(np.random.default_rng(seed), complete=seed % 3 > 0)
    wanted = int(m.rng.integers(LEAST, MOST + 1))
    families = list(FAMILIES)
    weights = np.array([FAMILIES[family] for family in families], float)
    for _ in range(m.integer(1, 3)):
        m.input(m.float_type(), m.shape())
    while len(m.steps) < wanted:
        try:
            families[int(m.rng.choice(len(families), p=weights / weights.sum()))](m)
        except Skip:
            continue
    read = {name for step in m.steps for name in step.operands}
    everything = tuple(step.name for step in m.steps)
    if m.complete:
        return Program(seed, m.inputs, tuple(m.steps), everything)
    results = tuple(name for name in everything if name not in read)
    floats = tuple(n.name for n in m.nodes if n.name in m.inputs and n.dtype in FLOATS)
    differentiated = floats if seed % 2 and all(differentiable(step.expression) for step in m.steps) else ()
    return Program(seed, m.inputs, tuple(m.steps), results, differentiated)


def differentiable(expression: str) -> bool:
    """Whether TensorFlow has a gradient of the operation, and XLA a kernel for it."""
    return not any(name in expression for name in ("xla.", "gradient(", "truncatemod", "top_k", "cumprod"))
