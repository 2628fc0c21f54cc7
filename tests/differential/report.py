"""The table of results: N of M public names, and a reason for each that is missing."""

from __future__ import annotations

import collections
import re
import textwrap
from collections.abc import Iterable

from tests.differential.comparison import (
    DIFFERS,
    FAILS,
    NO_REFERENCE,
    REFUSED,
    RUNS,
    SAME,
    STILL,
    UNSUPPORTED,
    Outcome,
)
from tests.differential.frameworks import Framework
from tests.differential.suite import Entry

GOOD = {SAME, RUNS}
ORDER = (DIFFERS, STILL, FAILS, UNSUPPORTED, NO_REFERENCE, REFUSED, RUNS, SAME)
Results = list[tuple[Entry, list[Outcome]]]


def is_good(entry: Entry, outcomes: list[Outcome]) -> bool:
    """Whether every case of a public name does on the engine what it does on TensorFlow, in every mode."""
    return bool(entry.cases) and all(outcome.verdict in GOOD for outcome in outcomes)


def counts(results: Results) -> dict[str, tuple[int, int]]:
    """For each kind: how many names are good, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for entry, outcomes in results:
        good, total = found.get(entry.kind, (0, 0))
        found[entry.kind] = good + is_good(entry, outcomes), total + 1
    return found


def missing(results: Results) -> Iterable[tuple[str, str, str]]:
    """Name, modes and reason, once for each name and reason."""
    for entry, outcomes in results:
        if entry.reason:
            yield entry.name, "", entry.reason
        reasons: dict[tuple[str, str], list[str]] = {}
        for outcome in sorted(outcomes, key=lambda o: ORDER.index(o.verdict)):
            if outcome.verdict not in GOOD:
                key = (outcome.case.variant, f"{outcome.verdict}: {shortened(outcome)}")
                reasons.setdefault(key, []).append(outcome.mode)
        for (variant, reason), modes in reasons.items():
            yield entry.name + (f" ({variant})" if variant else ""), ", ".join(modes), reason


def shortened(outcome: Outcome) -> str:
    """What an error received; the rest of its message is about what to do."""
    reason = re.sub("\x1b\\[\\d+m", "", outcome.reason).replace("|", "\\|")
    resource = re.search(r'type="([\w:]+)"', reason)
    received = re.search(r"Received: (.*?)(?: at '|\. (?:Run|Its shape|It comes|docs)|$)", reason)
    if resource:
        return f"a resource that is no variable, {resource.group(1)}"
    text = received.group(1) if received and outcome.verdict in (REFUSED, UNSUPPORTED) else reason
    return textwrap.shorten(text, 120, placeholder=" …")


def others(results: Results) -> str:
    """How many names miss for what kind of reason; of several kinds, the one that is most our fault."""
    found = collections.Counter(
        min((o.verdict for o in outcomes), key=ORDER.index) if entry.cases else "not for a device"
        for entry, outcomes in results
        if not is_good(entry, outcomes)
    )
    return ", ".join(f"{number} {verdict}" for verdict, number in found.most_common()) or "none"


def page(framework: Framework, results: Results) -> str:
    """The section of one framework, in Markdown."""
    table = counts(results)
    good, total = (sum(column) for column in zip(*table.values(), strict=True))
    cases = sum(len(entry.cases) for entry, _ in results)
    lines = [
        f"## {framework.name}",
        "",
        f"**{good} of {total}** public names ({cases} cases) train, evaluate and predict as on TensorFlow. "
        f"Of the others: {others(results)}.",
        "",
        "| kind | good | of |",
        "|---|---|---|",
        *(f"| {kind} | {n} | {m} |" for kind, (n, m) in table.items()),
        "",
        "Missing:",
        "",
        "| name | mode | reason |",
        "|---|---|---|",
        *(f"| {name} | {modes} | {reason} |" for name, modes, reason in missing(results)),
        "",
    ]
    return "\n".join(lines)
