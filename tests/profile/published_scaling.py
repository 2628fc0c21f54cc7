"""Throughput that has been published of models on systems of several sizes, beside the prediction for each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.profile.links import all_reduce
from engine.profile.scaling import Kind, Prediction, Workload, predict
from engine.target import target


@dataclass(frozen=True, slots=True)
class PublishedScaling:
    """A model's published throughput on systems of several sizes, with predictions from the first system."""

    name: str
    systems: tuple[str, ...]
    published: tuple[float, ...]
    predictions: tuple[Prediction, ...]
    tolerance: float
    source: str
    assumed: str

    @property
    def efficiencies(self) -> tuple[float, ...]:
        """The published throughput of a replica on each system, relative to the first system."""
        alone = self.published[0] / self.predictions[0].replicas
        return tuple(rate / p.replicas / alone for rate, p in zip(self.published, self.predictions, strict=True))

    @property
    def errors(self) -> tuple[float, ...]:
        """Errors of the predicted throughput relative to the published one; 0 for the first system."""
        pairs = zip(self.predictions, self.published, strict=True)
        return tuple(p.samples_per_second / rate - 1 for p, rate in pairs)


@cache
def published_scaling(kind: Kind = "strong") -> tuple[PublishedScaling, ...]:
    """All published figures with their predictions; most do not say how the batch grows."""
    found = []
    for row in tomllib.loads(Path(__file__).with_name("scaling.toml").read_text())["published"]:
        chip, replicas = target(row["chip"]), row["replicas"]
        sums = all_reduce(row["gradient_bytes"], replicas[0], chip, row["ipus_per_replica"])
        seconds = row["samples"] * row["accumulation"] * replicas[0] / row["samples_per_second"][0]
        each = (seconds - sums.seconds) / (row["accumulation"] + row["ramp"])
        workload = Workload(
            samples=row["samples"],
            work_seconds=each,
            gradient_bytes=row["gradient_bytes"],
            accumulation=row["accumulation"],
            ramp_seconds=row["ramp"] * each,
            ipus_per_replica=row["ipus_per_replica"],
        )
        predictions = predict(workload, chip, replicas, kind)
        rates, systems = tuple(row["samples_per_second"]), tuple(row["systems"])
        found.append(
            PublishedScaling(row["name"], systems, rates, predictions, row["tolerance"], row["source"], row["assumed"])
        )
    return tuple(found)
