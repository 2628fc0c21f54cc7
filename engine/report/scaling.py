"""The scaling section of a report: the same program on 1 to 1,024 replicas, by calculation."""

from __future__ import annotations

from typing import Any

from engine.profile.program_estimate import Estimate
from engine.profile.scaling import assumptions_of, predict, workload_of


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
            {
                "replicas": each.replicas,
                "ipus": each.ipus,
                "seconds_per_update": each.seconds,
                "samples_per_second": each.samples_per_second,
                "gradient_share": each.gradient_share,
                "efficiency": each.efficiency,
                "algorithm": each.algorithm,
                "peak_bytes": each.bytes,
                "fits": each.fits,
            }
            for each in predict(workload, estimate.target)
        ],
    }
