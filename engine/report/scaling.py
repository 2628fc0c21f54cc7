"""The scaling section of a report: the same program on 1 to 1,024 replicas, by calculation."""

from __future__ import annotations

from typing import Any

from engine.profile.program_estimate import Estimate
from engine.profile.scaling import assumptions_of, predict, workload_of
from engine.report.records import fields_of

PREDICTION = ("replicas", "ipus", "samples_per_second", "gradient_share", "efficiency", "algorithm", "fits")


def scaling_data(estimate: Estimate, gradient_bytes: int) -> dict[str, Any] | None:
    """The scaling section of a report's data; None for a program without gradients or already on several replicas."""
    if estimate.replicas > 1:
        return None
    workload = workload_of(estimate, gradient_bytes)
    if not workload.gradient_bytes:
        return None
    return {
        "gradient_bytes": workload.gradient_bytes,
        "samples_of_replica": workload.samples * workload.accumulation,
        "assumptions": assumptions_of(estimate.target),
        "rows": [
            fields_of(each, *PREDICTION) | {"seconds_per_update": each.seconds, "peak_bytes": each.bytes}
            for each in predict(workload, estimate.target)
        ],
    }
