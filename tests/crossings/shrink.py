"""Cuts a failing plan down to the features that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.crossings.plan import Misfit, Plan, all_features

Fails = Callable[[Plan], bool]
MOST_TRIES = 30


def shrink(plan: Plan, fails: Fails) -> Plan:
    """The smallest plan found that still `fails`: fewer features, then simpler options."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(plan):
            try:
                candidate.draft()
            except Misfit:
                continue
            tries += 1
            if tries > MOST_TRIES:
                return plan
            if fails(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _simpler(plan: Plan) -> Iterator[Plan]:
    features = plan.features
    for size in (len(features) // 2, 1) if len(features) > 5 else (1,):
        for at in range(0, len(features), size):
            yield Plan(plan.keras, plan.modes, features[:at] + features[at + size :])
    for at, word in enumerate(features):
        name, _, option = word.partition("=")
        if option and all_features()[name].option(option) != all_features()[name].options[0]:
            yield Plan(plan.keras, plan.modes, (*features[:at], name, *features[at + 1 :]))
