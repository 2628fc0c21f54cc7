"""The pipeline section of a report: rows of its schedule in cycles, bubbles, and bytes of each IPU."""

from __future__ import annotations

from typing import Any

from engine.profile.program_estimate import Estimate

ROWS = 4000
"""Most rows of a schedule in a report."""


def pipeline_data(estimate: Estimate) -> dict[str, Any] | None:
    """The pipeline section of a report's data; None for a program that is not a pipeline."""
    pipeline = estimate.pipeline
    if pipeline is None:
        return None
    return {
        "schedule": pipeline.schedule,
        "stages": pipeline.stages,
        "micro_batches": pipeline.micro_batches,
        "training": pipeline.training,
        "cycles": pipeline.cycles,
        "period": pipeline.period,
        "bubble_share": pipeline.bubble_share,
        "between_ipus_cycles": pipeline.between_ipus[0],
        "between_ipus_sync_cycles": pipeline.between_ipus[1],
        "rows_in_all": len(pipeline.rows),
        "rows": [
            {
                "slot": row.slot,
                "ipu": row.ipu,
                "stage": row.stage,
                "kind": row.kind,
                "micro_batch": row.micro_batch,
                "begin": row.start,
                "cycles": row.cycles,
            }
            for row in pipeline.rows[:ROWS]
        ],
        "ipus": [
            {
                "ipu": each.ipu,
                "stages": list(each.stages),
                "busy_cycles": each.busy,
                "bubble_share": each.waits,
                "peak_bytes": each.estimate.memory.peak_fullest,
                "always_live_bytes": each.estimate.memory.always_live_fullest,
                "stash_bytes": each.stash_bytes,
                "fits": each.fits,
            }
            for each in pipeline.ipus
        ],
        "parts": [
            {
                "kind": part.kind,
                "stage": part.stage,
                "compute": part.compute,
                "exchange": part.exchange,
                "sync": part.sync,
                "links": part.links,
                "cycles": part.cycles,
                "received_bytes": part.received_bytes,
            }
            for part in pipeline.parts
        ],
    }
