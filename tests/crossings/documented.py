"""Where a program may differ from plain Keras: one table, with the reason and the page of each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.crossings.plan import Plan

AWAITED: tuple[str, ...] = (
)


@dataclass(frozen=True)
class Documented:
    """A difference that docs/`page` describes, of programs with all of `features`, in values whose path matches."""

    features: frozenset[str]
    values: str
    reason: str
    page: str


TABLE = (
)


def excused(plan: Plan, found: list[str]) -> list[str]:
    """Those of the lines that no row of the table is about."""
    rows = [row for row in TABLE if plan.has(row.features)]
    return [line for line in found if not any(re.match(row.values, line) for row in rows)]


def parse(words: tuple[str, ...]) -> list[frozenset[str]]:
    """Exclusions, each of features joined with "+": a program that has all of one is not made."""
    return [frozenset(word.split("+")) for word in words]
