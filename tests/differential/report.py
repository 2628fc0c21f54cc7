"""Records of outcomes for each framework and kind, and the page in docs/ made of them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.differential.comparison import (
    DIFFERS,
    FAILS,
    FLOOR,
    NO_REFERENCE,
    REFUSED,
    RUNS,
    SAME,
    STILL,
    UNSUPPORTED,
    Outcome,
)
from tests.differential.suite import Entry

GOOD = {SAME, RUNS}
ORDER = (DIFFERS, STILL, FAILS, UNSUPPORTED, NO_REFERENCE, REFUSED, RUNS, SAME)
HOST_ONLY = "not for a device"
"""The verdict of a name without cases."""
Results = list[tuple[Entry, list[Outcome]]]
Record = dict[str, Any]
"""The record of one kind in one framework; `Records` are these by framework and kind."""
Records = dict[str, dict[str, Record]]


@dataclass(frozen=True)
class Missing:
    """A name (and variant) that is not as on TensorFlow, in which modes, and why."""

    name: str
    modes: str
    verdict: str
    reason: str


def is_good(entry: Entry, outcomes: list[Outcome]) -> bool:
    """Whether every case of a public name agrees on the engine with TensorFlow, in every mode."""
    return bool(outcomes) and all(outcome.verdict in GOOD for outcome in outcomes)


def counts(results: Results) -> dict[str, tuple[int, int]]:
    """Number of good names, and of all, by kind."""
    found: dict[str, tuple[int, int]] = {}
    for entry, outcomes in results:
        good, total = found.get(entry.kind, (0, 0))
        found[entry.kind] = good + is_good(entry, outcomes), total + 1
    return found


def missing(results: Results) -> Iterable[Missing]:
    """An entry for each name, variant and reason."""
    for entry, outcomes in results:
        if entry.reason:
            yield Missing(entry.name, "", HOST_ONLY, entry.reason)
        modes: dict[tuple[str, str, str], list[str]] = {}
        for outcome in sorted(outcomes, key=lambda o: ORDER.index(o.verdict)):
            if outcome.verdict not in GOOD:
                modes.setdefault((outcome.case.variant, outcome.verdict, shortened(outcome)), []).append(outcome.mode)
        for (variant, verdict, reason), found in modes.items():
            yield Missing(entry.name + (f" ({variant})" if variant else ""), ", ".join(found), verdict, reason)


def shortened(outcome: Outcome) -> str:
    """The received value in an error's message, without its advice."""
    reason = re.sub("\x1b\\[\\d+m", "", outcome.reason).replace("|", "\\|")
    resource = re.search(r'type="[\w:]*?(\w+)"', reason)
    if resource:
        return f"a {resource.group(1)}, which is a resource but no variable"
    received = re.search(r"Received: (.*?)(?: at '|\. (?:Run|Its shape|It comes|docs)|$)", reason)
    text = received.group(1) if received and outcome.verdict in (REFUSED, UNSUPPORTED) else reason
    if outcome.verdict == REFUSED and "Its shape depends on values" in reason:
        return f"`{text}` with a shape known only at run time"
    return f"no HLO for `{text}`" if outcome.verdict == REFUSED else textwrap.shorten(text, 120, placeholder=" …")


def records(results: Results) -> dict[str, Record]:
    """Record of each kind for the page."""
    found: dict[str, Record] = {}
    for kind, (good, total) in counts(results).items():
        mine = [(entry, outcomes) for entry, outcomes in results if entry.kind == kind]
        compared = [outcome for _, outcomes in mine for outcome in outcomes if outcome.verdict == SAME]
        found[kind] = {
            "good": good,
            "names": total,
            "not refused": total - sum(_is_refused(entry, outcomes) for entry, outcomes in mine),
            "cases": sum(len(entry.cases) for entry, _ in mine),
            "compared": len(compared),
            "within 1e-6": sum(outcome.found <= FLOOR / 10 for outcome in compared),
            "beyond 1e-5": sum(outcome.found > FLOOR for outcome in compared),
            "missing": [[m.name, m.modes, m.verdict, m.reason] for m in missing(mine)],
        }
    return found


def _is_refused(entry: Entry, outcomes: list[Outcome]) -> bool:
    """Whether a name is missing for the one reason that XLA or every device refuses it."""
    verdicts = {outcome.verdict for outcome in outcomes} - GOOD
    return not entry.cases or (bool(verdicts) and verdicts <= {REFUSED})


def summary(framework: str, kinds: dict[str, Record]) -> str:
    """One line."""
    good, names, possible = (sum(record[key] for record in kinds.values()) for key in ("good", "names", "not refused"))
    cases = sum(record["cases"] for record in kinds.values())
    return (
        f"{framework}: {good} of {names} public names ({cases} cases) train, evaluate and predict as on TensorFlow; "
        f"{possible} of them have HLO in every variant and mode."
    )
