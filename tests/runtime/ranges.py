"""Units of a compute set, divided among workers by hand."""

from __future__ import annotations


def even_ranges(units: int, workers: int) -> list[tuple[int, int]]:
    """Cuts 0 <= unit < units into one range for each worker, as equal as possible."""
    cuts = [units * worker // workers for worker in range(workers + 1)]
    return list(zip(cuts, cuts[1:], strict=False))
