"""Runs a case on TensorFlow and on the engine and says how far apart they end.

TensorFlow is compared with itself on batches whose rows are permuted: the same mathematics, other rounding. The
engine's distance from TensorFlow may be three times as large, or 1e-5 if that is more. Layers that draw random numbers
would draw others for permuted rows. Their distance may be 1e-5, from TensorFlow with `jit_compile=True`. Most other
layers run eagerly on TensorFlow, as tracing takes longer. Training must move the weights by at least thirty times the
allowed distance, or the comparison would show nothing. Evaluation and prediction start from the weights that TensorFlow
has trained.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.differential.case import BATCH, STEPS, Case
from tests.differential.frameworks import Framework

FLOOR, LAST_PLACES, FACTOR, ORDERS, MOVED = 1e-5, 2, 3.0, 2, 30.0
Results = list[np.ndarray]
MODES = ("train", "evaluate", "predict")
# Tables and other resources that are not variables have no HLO either.
REFUSED_BY_XLA = (
    *("Expected operations that XLA can compile", "XLA says:", "Expected resources that are variables"),
    "Expected numbers or booleans. Received: text",
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one mode of a case. `verdict` is one of the words below; `found` and `allowed` are distances."""

    case: Case
    mode: str
    verdict: str
    reason: str = ""
    found: float = 0.0
    allowed: float = 0.0


SAME, RUNS, DIFFERS, STILL, REFUSED, UNSUPPORTED, FAILS, NO_REFERENCE = (
    "same",
    "runs",  # the same, where random numbers cannot be repeated and so not compared
    "differs",
    "hardly moves",
    "refused by XLA",
    "not on the engine",
    "fails",
    "fails in TensorFlow",
)


def distance(a: Results, b: Results) -> float:
    """The largest difference; infinite when shapes, NaN or infinities do not match."""
    if [p.shape for p in a] != [q.shape for q in b]:
        return float("inf")
    return max((_distance(p, q) for p, q in zip(a, b, strict=True)), default=0.0)


def _distance(p: np.ndarray, q: np.ndarray) -> float:
    p, q = p.astype(np.float64), q.astype(np.float64)
    same = (p == q) | (np.isnan(p) & np.isnan(q))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(p - q))
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def flat(structure: Any) -> Results:
    return [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]


@dataclass(frozen=True)
class Data:
    x: list[np.ndarray]
    y: np.ndarray


class Subject:
    """A compiled model with its state, which can be put back."""

    def __init__(self, framework: Framework, case: Case, **compilation: int) -> None:
        keras = framework.keras
        keras.utils.set_random_seed(3)
        self.case, self.model = case, case.build(keras)
        self.model.compile(
            case.optimizer(keras),
            case.loss(keras),
            metrics=case.metrics(keras),
            **{"jit_compile": False, "steps_per_execution": 2, **compilation},
        )
        self.variables = framework.state(self.model)

    def read(self) -> Results:
        return [np.asarray(variable.numpy()) for variable in self.variables]

    def write(self, state: Results) -> None:
        for variable, value in zip(self.variables, state, strict=True):
            variable.assign(value)

    def run(self, mode: str, state: Results, data: Data, order: np.ndarray | None = None) -> Results:
        """Results of one mode, started from `state`: weights and logs, logs, or predictions in their first order."""
        self.write(state)
        rows = np.arange(len(data.y)) if order is None else order
        x = [each[rows] for each in data.x]
        x = x if len(x) > 1 else x[0]
        if mode == "train":
            history = self.model.fit(x, data.y[rows], batch_size=BATCH, shuffle=False, verbose=0).history
            return [*(np.asarray(w) for w in self.model.get_weights()), *flat(sorted(history.items()))[1::2]]
        if mode == "evaluate":
            return flat(self.model.evaluate(x, data.y[rows], batch_size=BATCH, verbose=0))
        return [each[np.argsort(rows)] for each in flat(self.model.predict(x, batch_size=BATCH, verbose=0))]


def data_of(case: Case) -> Data:
    generator = np.random.default_rng(5)
    rows = BATCH * STEPS
    return Data([feature.sample(generator, rows) for feature in case.features], case.labels(generator, rows))


def orders() -> list[np.ndarray]:
    """Rows permuted within each batch."""
    generator = np.random.default_rng(11)
    return [
        np.concatenate([step * BATCH + generator.permutation(BATCH) for step in range(STEPS)]) for _ in range(ORDERS)
    ]


@dataclass(frozen=True)
class Reference:
    """TensorFlow's results, and its state before each mode."""

    subject: Subject
    data: Data
    before: dict[str, Results]
    results: dict[str, Results]
    moved: float
    repeatable: bool
    """Whether the engine is to draw the same random numbers in training."""

    def floor(self, mode: str) -> float:
        """The distance from these results that is allowed even if TensorFlow's own distance is smaller."""
        return max(FLOOR, LAST_PLACES * max((_last_place(each) for each in self.results[mode]), default=0.0))

    def spread(self, mode: str) -> float:
        """The distance of TensorFlow's results for permuted rows from these; 0 for random layers, of which nothing is
        known.
        """
        if self.subject.case.random:
            return 0.0
        shuffled = [self.subject.run(mode, self.before[mode], self.data, order) for order in orders()]
        return max(distance(self.results[mode], each) for each in shuffled)


def _last_place(array: np.ndarray) -> float:
    """The unit in the last place of the largest finite number, as float32."""
    finite = np.abs(array.astype(np.float32))[np.isfinite(array)]
    return float(np.spacing(finite.max(initial=0.0)))


def reference_of(framework: Framework, case: Case, **compilation: int) -> Reference:
    """Trains, evaluates and predicts on TensorFlow."""
    data = data_of(case)
    with framework.reference_scope() if case.random else nullcontext():
        subject = Subject(framework, case, **compilation)
    if case.counts_traces:  # a step whose metrics must be built is traced twice
        subject.model.evaluate(data.x, data.y, batch_size=BATCH, steps=1, verbose=0)
    start = subject.read()
    weights = [np.asarray(each) for each in subject.model.get_weights()]
    before, results = {"train": start}, {"train": subject.run("train", start, data)}
    moved = distance(weights, results["train"][: len(weights)])
    for mode in ("evaluate", "predict"):
        before[mode] = subject.read()
        results[mode] = subject.run(mode, before[mode], data)
    return Reference(subject, data, before, results, moved, not case.random or "jit_compile" in compilation)


def _best_reference(framework: Framework, case: Case) -> Reference:
    """Runs TensorFlow with `jit_compile=True` where that draws the same random numbers, unless XLA refuses the
    model.
    """
    if case.counts_traces:
        return reference_of(framework, case, steps_per_execution=1)
    try:
        return reference_of(framework, case, **{"jit_compile" if case.random else "run_eagerly": True})
    except Exception as error:
        if case.random and not isinstance(error, tf.errors.OpError):
            raise
        return reference_of(framework, case)


def compare(framework: Framework, case: Case) -> list[Outcome]:
    """One outcome for each mode. Faults of either side become outcomes, not exceptions."""
    try:
        reference = _best_reference(framework, case)
    except Exception as error:
        return [Outcome(case, mode, NO_REFERENCE, telling_line(error)) for mode in MODES]
    try:
        with IPUStrategy().scope():
            ours = Subject(framework, case)
    except Exception as error:
        return [_failure(case, mode, error) for mode in MODES]
    return [_outcome(reference, ours, mode) for mode in MODES]


def _outcome(reference: Reference, ours: Subject, mode: str) -> Outcome:
    case, expected = ours.case, reference.results[mode]
    try:
        received = ours.run(mode, reference.before[mode], reference.data)
    except Exception as error:
        return _failure(case, mode, error)
    if mode == "train" and not reference.repeatable:
        finite = all(np.isfinite(each).all() for each in received)
        return Outcome(case, mode, RUNS if finite else DIFFERS, "" if finite else "not finite")
    allowed, found = reference.floor(mode), distance(expected, received)
    if found > allowed:
        # The spread only matters now, and takes as long as all the rest.
        allowed = max(allowed, FACTOR * reference.spread(mode))
    if found > allowed:
        return Outcome(case, mode, DIFFERS, f"{found:.1e} apart, allowed {allowed:.1e}", found, allowed)
    if mode == "train" and reference.moved < MOVED * FLOOR:
        return Outcome(case, mode, STILL, f"the weights move by {reference.moved:.1e} only", found, allowed)
    return Outcome(case, mode, SAME, "", found, allowed)


def _failure(case: Case, mode: str, error: Exception) -> Outcome:
    if not isinstance(error, UnsupportedOperation):
        return Outcome(case, mode, FAILS, telling_line(error))
    refused = any(each in str(error) for each in REFUSED_BY_XLA)
    return Outcome(case, mode, REFUSED if refused else UNSUPPORTED, telling_line(error))


AROUND = ("Exception encountered", "Arguments received", "Graph execution error", "Detected at node", "<stack", "  ")


def telling_line(error: Exception) -> str:
    """The error's kind and the first line of its message that is not about where it was raised."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    told = [line for line in lines if not line.startswith(AROUND)]
    return f"{type(error).__name__}: {(told or lines)[0].strip()}"[:400]
