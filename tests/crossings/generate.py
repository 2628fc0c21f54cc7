"""Plans drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.crossings.harness import MODES
from tests.crossings.plan import FRAMEWORKS, GROUPS, Feature, Misfit, Plan, all_features

CHANCES = {
    **{"device": (0.25, 0.6, 0.4, 0.3)},
    **{"model": (0.9,), "policy": (0.08,), "size": (0.5,), "frozen": (0.12,), "loss": (0.35,), "metrics": (0.4,)},
    **{"data": (0.65,), "weights": (0.3,), "optimizer": (0.8,), "slots": (0.4, 0.2), "schedule": (0.25,)},
    **{"compile": (0.4, 0.1), "epochs": (0.35, 0.1), "validation": (0.35,), "callback": (0.7, 0.4, 0.2)},
    **{"before": (0.1,), "action": (1.0, 0.9, 0.7, 0.5, 0.3)},
}
"""Chances, for each group, that a program has one feature, a second, a third ..."""


def generate(seed: int, wanted: Sequence[str] = (), without: Sequence[frozenset[str]] = (), modes: int = 1) -> Plan:
    """Draws the plan of a seed, with `wanted` features, in `modes` modes; never one with all features of an
    exclusion.
    """
    rng = np.random.default_rng(seed)
    while True:
        plan = _drawn(rng, wanted, modes)
        if not any(plan.has(exclusion) for exclusion in without):
            return plan


def _drawn(rng: np.random.Generator, wanted: Sequence[str], modes: int) -> Plan:
    named = [word for word in wanted if word.partition("=")[0] in all_features()]
    frameworks = [word for word in wanted if word in FRAMEWORKS] or [k for k in FRAMEWORKS if _allowed(k, named)]
    places = [word.removeprefix("mode:") for word in wanted if word.startswith("mode:")]
    chosen = tuple(places or (str(m) for m in rng.permutation(MODES)[:modes]))
    plan = Plan(str(rng.choice(frameworks)), chosen, ())
    for group in GROUPS:
        of_group = [each for each in all_features().values() if each.group == group and plan.keras in each.frameworks]
        asked = [word for word in named if all_features()[word.partition("=")[0]].group == group]
        for word in asked:
            plan = _with(plan, word)
        chances = (
            CHANCES[group][len(asked) :]
            if group == "action" or len(CHANCES[group]) > 1
            else ()
            if asked
            else CHANCES[group]
        )
        for chance in chances:
            if rng.random() >= chance:
                break
            for _ in range(4):
                try:
                    longer = _with(plan, _word(rng, of_group))
                    longer.draft()
                except Misfit:
                    continue
                plan = longer
                break
    try:
        plan.draft()
    except Misfit:
        return _drawn(rng, wanted, modes)
    return plan


def _with(plan: Plan, word: str) -> Plan:
    return Plan(plan.keras, plan.modes, (*plan.features, word))


def _allowed(keras: str, words: Sequence[str]) -> bool:
    return all(keras in all_features()[word.partition("=")[0]].frameworks for word in words)


def _word(rng: np.random.Generator, features: list[Feature]) -> str:
    weights = np.array([each.weight for each in features])
    chosen = features[int(rng.choice(len(features), p=weights / weights.sum()))]
    option = str(rng.choice(chosen.options))
    return f"{chosen.name}={option.replace(' ', '_')}" if option else chosen.name
