"""The pipeline section of a report: rows of its schedule in cycles, bubbles, and bytes of each IPU."""

from __future__ import annotations

from typing import Any

from engine.profile.program_estimate import Estimate
from engine.report.records import fields_of

PIPELINE = ("schedule", "stages", "micro_batches", "training", "cycles", "period", "bubble_share")
PART = ("kind", "stage", "compute", "exchange", "sync", "links", "cycles", "received_bytes")
ROWS = 4000
"""Most rows of a schedule in a report."""


def pipeline_data(estimate: Estimate) -> dict[str, Any] | None:
    """The pipeline section of a report's data; None for a program that is not a pipeline."""
    pipeline = estimate.pipeline
    if pipeline is None:
        return None
    return {
        **fields_of(pipeline, *PIPELINE),
        "between_ipus_cycles": pipeline.between_ipus[0],
        "between_ipus_sync_cycles": pipeline.between_ipus[1],
        "rows_in_all": len(pipeline.rows),
        "rows": [
            fields_of(row, "slot", "ipu", "stage", "kind", "micro_batch", "cycles") | {"begin": row.start}
            for row in pipeline.rows[:ROWS]
        ],
        "ipus": [
            {
                **fields_of(each, "ipu", "stash_bytes", "fits"),
                "stages": list(each.stages),
                "busy_cycles": each.busy,
                "bubble_share": each.waits,
                "peak_bytes": each.estimate.memory.peak_fullest,
                "always_live_bytes": each.estimate.memory.always_live_fullest,
            }
            for each in pipeline.ipus
        ],
        "parts": [fields_of(part, *PART) for part in pipeline.parts],
    }
