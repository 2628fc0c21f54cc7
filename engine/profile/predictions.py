"""Predictions for several numbers of replicas, which prompts and notebooks show as a table."""

from __future__ import annotations

from collections.abc import Iterable

from engine.profile.scaling import Prediction, scaling_table
from engine.shown import Shown
from engine.target import Target


class Predictions(tuple[Prediction, ...], Shown):
    """A tuple of predictions for one chip, `target`."""

    target: Target

    def __new__(cls, predictions: Iterable[Prediction], target: Target) -> Predictions:
        made = super().__new__(cls, predictions)
        made.target = target
        return made

    def __getnewargs__(self) -> tuple[tuple[Prediction, ...], Target]:
        return tuple(self), self.target

    def table(self) -> str:
        """The predictions one per line, then their assumptions."""
        return scaling_table(self, self.target)

    __repr__ = Shown.__repr__
