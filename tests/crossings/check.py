"""Check of a plan with plain Keras and in its modes, and the list of differences."""

from __future__ import annotations

import functools
import linecache
import re
import textwrap
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from tests.crossings import harness, micro_batches, processes
from tests.crossings.compare import Items, differences
from tests.crossings.documented import also_in_xla, before_faults, excused
from tests.crossings.plan import THREADS, Plan

KERAS = {"keras": keras, "tf_keras": tf_keras}
REFUSALS = {"UnsupportedOperation", "ConfigurationError", "StepCountError"}
OF_PROGRAMS = ("HOOKS", "BATCH_HOOKS", "numbers", "part", "plain", "rows", "set_policy", "variable")
"""Names in the harness that the source of a program uses."""
EXACT = 1e7
"""Roundings of float64 that count as no difference: some 1e-9."""
EXACT_WITH_RATES = 1e10
"""Roundings of float64 that make one of float32, in which schedules compute rates."""
TRIES = 6
"""Runs of a program whose threads disturb each other in plain tf_keras: a quarter fail, and some lack a batch."""
IMPORT = "from tests.crossings.micro_batches import Device, MicroBatches, part\n"
FLOATS_OF_16_BITS = 2.0**12
"""The rounding of a 16-bit float in roundings of float32, with some margin."""


def check(plan: Plan) -> list[str]:
    """A line for each difference in any of the plan's modes; none if all are as in plain Keras or documented.

    The first line is "refused ..." where the engine refuses a program of the IPU's API.
    """
    source = plan.source()
    run = functools.partial(_run, source, plan.keras, in_xla=False)  # as below, so that each runs once
    for mode in plan.modes:
        if mode == "scope" and (reason := _refusal(run(mode), run("plain"))):
            return [f"refused: {reason}"]
        found = _differences(plan, source, mode)
        if found and also_in_xla(plan):
            found = _differences(plan, source, mode, in_xla=True)
        if found:
            return [f"{mode} {line}" for line in found]
    return []


def _differences(plan: Plan, source: str, mode: str, in_xla: bool = False) -> list[str]:
    """The lines that no documented difference explains; floats are compared in float64, too, if only they differ."""
    run = functools.partial(_run, source, plan.keras, in_xla=in_xla)
    got, wanted = before_faults(run(mode), run("plain"))
    found = excused(plan, differences(got, wanted))
    if not (found and _only_floats(found)):
        return found
    truth = run("plain", "float64")[: len(wanted)]
    if "mixed_precision" in plan.names:
        return excused(plan, differences(got, wanted, truth, FLOATS_OF_16_BITS))
    exact = run(mode, "float64")[: len(got)]
    roundings = EXACT_WITH_RATES if "schedule" in plan.names else EXACT
    found = excused(plan, differences(exact, truth, roundings=roundings, f="float64"))
    return [f"float64 {line}" for line in found] or excused(plan, differences(got, wanted, truth))


def _only_floats(found: list[str]) -> bool:
    return all(" off by " in line for line in found)


def _refusal(got: Items, wanted: Items) -> str:
    """The first error that is a refusal of the engine's, while both have errors alike; "" if there is none."""
    for (label, value), (_, other) in zip(got, wanted, strict=False):
        if isinstance(value, harness.Raised) and REFUSALS & {*value.classes}:
            return f"{label}: {value}"
        if type(value) is not type(other):
            return ""
    return ""


@lru_cache(maxsize=8)
def _run(source: str, keras_name: str, mode: str, f: str = "float32", in_xla: bool = False) -> Items:
    sizes = [
        int((re.search(rf"n = note\.device\(.*\b{name}=(\d+)", source) or ("", 1))[1])
        for name in ("processes", "replicas")
    ]
    if mode == "scope" and sizes[0] > 1:
        return processes.run(source, keras_name, f, *sizes)
    program = program_of(source)
    for _ in range(TRIES):
        items = harness.run(program, KERAS[keras_name], mode, f, in_xla)
        if mode != "plain" or not any(label == THREADS and _is_disturbed(value) for label, value in items):
            break
    return items


def program_of(source: str) -> Callable[..., None]:
    """The function of a source."""
    names: dict[str, Any] = {"np": np, "tf": tf, "note": None}
    names |= {name: {**vars(micro_batches), **vars(harness)}[name] for name in OF_PROGRAMS}
    linecache.cache["<program>"] = len(source), None, source.splitlines(keepends=True), "<program>"  # h5 files keep it
    exec(compile(source, "<program>", "exec"), names)
    return names["program"]


def _is_disturbed(value: Any) -> bool:
    """Whether a call in threads has raised, or its results, which are of the same inputs, differ in their shapes."""
    return isinstance(value, harness.Raised) or len({str(tf.nest.map_structure(np.shape, each)) for each in value}) > 1


def raised_by_keras(plan: Plan) -> list[str]:
    """The labels of a plan's actions at which plain Keras raises, with the errors."""
    wanted = _run(plan.source(), plan.keras, "plain", in_xla=False)
    return [f"{label}: {value!r}" for label, value in wanted if isinstance(value, harness.Raised)]


def stand_alone(plan: Plan) -> str:
    """A program that shows the difference and needs nothing of the tests: it prints both sides of each value."""
    here = Path(__file__).parent
    mode = plan.modes[0]
    parts = [
        (here / "micro_batches.py").read_text(),
        (here / "harness.py").read_text().replace(IMPORT, ""),
        f"import {plan.keras} as K\n\n\n{plan.source()}\n\n",
        textwrap.dedent(
            f"""
            def leaves(path, value):
                value = dict(enumerate(value)) if isinstance(value, list) else value
                pairs = value.items() if isinstance(value, dict) else ()
                return [leaf for key, each in pairs for leaf in leaves(f"{{path}}/{{key}}", each)] or [(path, value)]


            wanted, got = (
                leaves("", [[label, value] for label, value in run(program, K, mode)])
                for mode in ("plain", {mode!r})
            )
            for path, value in wanted:
                here = dict(got).get(path)
                same = repr(here) == repr(value)
                with contextlib.suppress(TypeError):
                    same = same or np.allclose(here, value, rtol=1e-3, atol=1e-5, equal_nan=True)
                if not same:
                    print(path, "plain", value, "here", here, sep="\\n  ")
            """
        ).strip(),
    ]
    return "\n\n".join(parts)
