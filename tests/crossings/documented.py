"""The documented differences from plain Keras: one table, with the reason and the page of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.crossings.compare import Items
from tests.crossings.harness import Raised
from tests.crossings.plan import Plan

AWAITED: tuple[str, ...] = ()
"""Features with faults that are still to be mended: programs have them only with --awaited."""


@dataclass(frozen=True)
class Documented:
    """A documented difference: programs with all `features` differ in lines that match `values`; docs/`page` says so.

    Where `values` is empty, no such programs are made.
    """

    features: frozenset[str]
    values: str
    reason: str
    page: str


@dataclass(frozen=True)
class Fault:
    """An error of plain Keras that ends a comparison. Here none is raised, or `instead`, by its text."""

    error: str
    instead: str
    reason: str
    page: str


def parse(words: tuple[str, ...]) -> list[frozenset[str]]:
    """The exclusions that words name, each of features joined with "+": no program has all features of one."""
    return [frozenset(word.split("+")) for word in words]


def _rows(*names: str, values: str, reason: str, page: str) -> list[Documented]:
    """A row of the table for each name, which joins features with "+"."""
    return [Documented(each, values, reason, page) for each in parse(names)]


TABLE = (
    *_rows(
        "mode:scope+apply_gradients",
        values="",
        reason="optimizers update only in `strategy.run`",
        page="accelerate.md",
    ),
    *_rows(
        *("steps_per_execution+logged",),
        values=r".*callback train_batch_(begin|end) #\d+/0:|.*callback (test|predict)_batch_(begin|end) #\d+/0:",
        reason="callbacks get the number of the last batch",
        page="accelerate.md",
    ),
    *_rows(
        "failing_generator",
        values=r".*: plain (Unknown|InvalidArgument)Error: .*, here LookupError: ",
        reason="the error as it was raised",
        page="accelerate.md",
    ),
    *_rows(
        "bad_call=labels",
        values=r".*(iterations|slots/\d+ (iteration|iter)|/metrics/.*):",
        reason="parts of the failing step may have run",
        page="value_checks.md",
    ),
    *_rows(
        *("bad_call=labels+normalized=batch", "bad_call=labels+weight_decay", "bad_call=labels+averaged"),
        values=r".*(/(weights|slots)/.*:| off by )",
        reason="parts of the failing step may have run",
        page="value_checks.md",
    ),
    *_rows(
        "mode:copy+before_copying",
        values=r".*/(metrics|stop_training)",
        reason="metrics of a copy | | begin without values",
        page="accelerate.md",
    ),
    *_rows(
        "tf_keras+random_layers",
        values=r".* off by ",
        reason="random layers of tf_keras and functions such as `tf.random.uniform` draw other numbers",
        page="accelerate.md",
    ),
    *_rows(
        "tf_keras+sgd=plain",
        values=r".*/slots/\d+ \w+:",
        reason="velocities of SGD without momentum, tf_keras",
        page="accelerate.md",
    ),
    *_rows(
        *("keras+unbuilt+bad_call=shape", "keras+unbuilt+bad_call=missing"),
        values=r".*/(weights|slots|metrics)/.*: plain \[\], here ",
        reason="the weights have their initial values",
        page="accelerate.md",
    ),
)

IN_XLA = _rows(
    *("dataset=no_length", "generator=finite", "generator=iterator", "failing_generator", "steps_per_epoch=100"),
    *("steps_per_epoch=3+size=5/8", "dataset=dropped+size=5/8"),
    *("steps_per_epoch=3+shuffle", "steps_per_epoch=3+default_batch_size"),
    values=".*",
    reason="at the end of the data plain Keras runs the parts of another step that need no data",
    page="accelerate.md",
)
"""Programs compared with plain Keras in XLA, too, of which one result has to be the same."""

FAULTS = (
    Fault(
        error=r"Creating variables on a non-first call to a function decorated with tf\.function"
        r"|tf\.function only supports singleton tf\.Variables created on the first call"
        r"|Unexpected result of `train_function` \(Empty logs\)"
        r"|argument of type 'NoneType' is not iterable"
        r"|Attr 'Toutput_types' of 'OptionalFromValue' Op passed list of length 0"
        r"|variable\.shape=\([1-9].* Received: value\.shape=\(0,\)",
        instead="$|of a callback",
        reason="a later call of the same model raises",
        page="accelerate.md",
    ),
    Fault(
        error="has no attribute '_training_state'",
        instead="",
        reason="`AttributeError` about `_training_state`",
        page="accelerate.md",
    ),
    Fault(
        error="The last dimension of the inputs to a Dense layer should be defined",
        instead="$",
        reason="the copy loads",
        page="accelerate.md",
    ),
    Fault(
        error=r"^'\w+'$|Unable to",
        instead=".*No such file or directory",
        reason="a file whose saving raised an error",
        page="accelerate.md",
    ),
    Fault(
        error=r"cannot access local variable 'batch_outputs'",
        instead="Expected data with at least one sample",
        reason="`predict` of data without a single batch",
        page="accelerate.md",
    ),
    Fault(
        error=r"Graph execution error|in user code",
        instead=r"Input 0 of layer \S+ is incompatible with the layer|Exception encountered when calling layer",
        reason="an input of a wrong shape is refused before the step",
        page="accelerate.md",
    ),
)
"""Compared are the results before."""


def before_faults(got: Items, wanted: Items) -> tuple[Items, Items]:
    """Both lists up to the first of plain Keras' faults."""
    for number, ((_, theirs), (_, ours)) in enumerate(zip(wanted, got, strict=False)):
        if isinstance(theirs, Raised) and any(_is_fault(each, theirs, ours) for each in FAULTS):
            return got[:number], wanted[:number]
    return got, wanted


def _is_fault(fault: Fault, theirs: Raised, ours: Any) -> bool:
    if isinstance(ours, Raised) and theirs.classes[0] in ours.classes:
        return False
    text = ours.text if isinstance(ours, Raised) else ""
    return bool(re.match(fault.instead, text) and re.search(fault.error, theirs.text))


def also_in_xla(plan: Plan) -> bool:
    """Whether a program may differ from plain Keras if it is as in plain Keras with `jit_compile=True`."""
    return any(plan.has(row.features) for row in IN_XLA)


def excused(plan: Plan, found: list[str]) -> list[str]:
    """The lines that no row of the table explains."""
    rows = [row for row in TABLE if row.values and plan.has(row.features)]
    return [line for line in found if not any(re.match(row.values, line) for row in rows)]


def exclusions(words: tuple[str, ...] = AWAITED) -> list[frozenset[str]]:
    """Sets of features that no program has together: those in `words`, and those of rows of the table."""
    return [*parse(words), *(row.features for row in TABLE if not row.values)]
