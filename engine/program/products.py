"""Which compute sets are products."""

from __future__ import annotations

from engine.program.program import ComputeSet


def is_float32_product(compute_set: ComputeSet) -> bool:
    """Whether its codelet is that of float32 contractions, known by its name: to import it would load the compiler."""
    return getattr(compute_set.work.vertex, "name", "") == "contract_f32"
