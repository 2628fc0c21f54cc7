"""A program that crosses features of the IPU, as the words of one line: `kind=pipeline optimizer=adam replicas=2`.

Each axis has options, of which a program takes one; the first is the simplest, and left out of the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

AXES: Mapping[str, tuple[str, ...]] = {
    "kind": ("loop", "single", "while", "pipeline", "estimator", "pipeline_estimator"),
    "stages": ("2", "3"),
    "schedule": ("Grouped", "Interleaved", "Sequential"),
    "recompute": ("no", "yes"),
    "accumulate": ("1", "2", "3"),
    "reduction": ("sum", "mean", "running_mean"),
    "replicas": ("1", "2"),
    "optimizer": ("sgd", "momentum", "nesterov", "adam", "rmsprop", "adagrad", "own"),
    "wrapper": ("none", "map", "clip", "sharded"),
    "rate": ("constant", "fed", "step"),
    "layer": (
        "dense",
        "outlined",
        "outlined_twice",
        "conv",
        "lstm",
        "gru",
        "table",
        "host_table",
        "tf_layers",
        "keras",
    ),
    "norm": ("none", "group", "layer", "batch"),
    "loss": ("mse", "cross_entropy", "huber"),
    "data": ("slices", "map", "generator", "dict"),
    "outfeed": ("all", "dict", "last", "loss", "accumulated", "none"),
    "state": ("none", "moving", "counter", "cond"),
    "after": ("nothing", "evaluate", "restore", "again", "predict"),
    "v2": ("off", "on"),
}
CHANCE = 0.3
"""Chance that an axis has another option than its first."""


@dataclass(frozen=True)
class Plan:
    """One option for each axis."""

    options: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, axis: str) -> str:
        return self.options.get(axis, AXES[axis][0])

    def __str__(self) -> str:
        return " ".join(f"{axis}={self[axis]}" for axis in AXES if self[axis] != AXES[axis][0]) or "plain"

    @classmethod
    def read(cls, line: str) -> Plan:
        """The plan that a line describes. Raises KeyError and ValueError for unknown words."""
        words = [word.split("=") for word in line.split() if word != "plain"]
        for axis, option in words:
            if option not in AXES[axis]:
                raise ValueError(f"Expected one of {AXES[axis]} for {axis}. Received: {option}.")
        return cls(dict(words))

    def simpler(self) -> list[Plan]:
        """Plans that differ in one axis, which has its first option."""
        changed = [axis for axis in AXES if self[axis] != AXES[axis][0]]
        return [Plan({a: o for a, o in self.options.items() if a != axis}) for axis in changed]

    @property
    def is_pipeline(self) -> bool:
        """Whether the program has stages."""
        return self["kind"].startswith("pipeline")

    @property
    def is_estimator(self) -> bool:
        """Whether an estimator runs the program."""
        return self["kind"].endswith("estimator")

    def is_sensible(self) -> bool:
        """Whether the options go together, and each changes something."""
        kind, pipeline = self["kind"], self.is_pipeline
        accumulates = pipeline or self["accumulate"] != "1"
        given = {axis for axis in AXES if self[axis] != AXES[axis][0]}
        return (
            (pipeline or not given & {"stages", "schedule", "recompute"})
            and not (pipeline and self["accumulate"] == "3")
            and (accumulates or "reduction" not in given)
            and not (kind in ("single", "while") and given & {"accumulate"})
            and not (kind == "single" and given & {"outfeed", "data"})
            and not (self.is_estimator and given & {"outfeed", "v2", "rate", "layer"} and self._is_beyond_estimators())
            and not (self["outfeed"] in ("accumulated", "loss") and kind != "pipeline")
            and not (pipeline and (self["state"] != "none" or self["rate"] == "fed"))
            # A loop has as many replicas as the pipeline's device has IPUs.
            and not (kind == "pipeline" and self["after"] == "predict")
            # Statistics of one replica differ from those of all, and a pipeline changes them between updates.
            and not (self["norm"] == "batch" and (self["replicas"] != "1" or accumulates or self.is_estimator))
            and not (self["layer"] == "host_table" and (given & {"optimizer", "wrapper", "rate", "accumulate"}))
            and not (self["layer"] == "host_table" and (pipeline or self.is_estimator or self["replicas"] != "1"))
            and not (self["replicas"] == "2" and (kind in ("single", "while") or self.is_estimator))
            and not (self["replicas"] == "2" and self["state"] != "none")
            and not (self["after"] in ("evaluate", "predict") and self["layer"] in ("host_table", "keras"))
            and not (self.is_estimator and self["data"] == "dict")
        )

    def _is_beyond_estimators(self) -> bool:
        return self["rate"] == "fed" or self["outfeed"] != "all" or self["v2"] == "on" or self["layer"] == "host_table"


def generate(seed: int, wanted: Mapping[str, str] | None = None) -> Plan:
    """The plan of a seed, with the wanted options."""
    rng = np.random.default_rng(seed)
    plan = Plan(dict(wanted or {}))
    kinds = [kind for kind in AXES["kind"] if Plan({**plan.options, "kind": kind}).is_sensible()]
    plan = Plan({"kind": str(rng.choice(kinds)), **plan.options})
    for axis in rng.permutation([*AXES, *AXES]):  # twice: some options need others
        longer = Plan({**plan.options, axis: str(rng.choice(AXES[axis][1:]))})
        if axis not in plan.options and rng.random() < CHANCE and longer.is_sensible():
            plan = longer
    return plan
