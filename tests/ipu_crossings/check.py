"""Check of a plan's program by the API and by the oracle, TensorFlow alone, in new processes; returns the
differences.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests import forking
from tests.crossings.compare import differences
from tests.ipu_crossings.plan import Plan
from tests.ipu_crossings.source import source

ROUNDINGS = 2.0**13
"""Tolerance in roundings of float32, relative to the largest number of an array: some 1e-3, because some steps are
divided by small numbers.
"""
OF_OPTIMIZERS = ("accumul", "Accum", "__dummy", "global_step", "beta1_power", "beta2_power", "/m")
SCOPES_OF_LOOPS = re.compile("^(while/)?net(_[0-9]+)?/")
"""TensorFlow's loops give their scope to variables that Keras layers make in them, and number the user's scopes."""
REFUSALS = ("UnsupportedOperation", "ConfigurationError", "Expected ")


class Notes:
    """Results of a program: (label, value), in the order in which it shows them; the oracle's have no replicas."""

    def __init__(self, replicas: int) -> None:
        self.items: list[tuple[str, Any]] = []
        self._replicas = replicas

    def __call__(self, label: str, value: Any) -> None:
        """Notes a structure of arrays; losses of several replicas as the mean over them, batches as one."""
        self.items.append((label, self._plain(value, label in ("outfed", "predicted") and self._replicas > 1)))

    def _plain(self, value: Any, replicated: bool) -> Any:
        if isinstance(value, dict):
            return {str(key): self._plain(each, replicated) for key, each in sorted(value.items())}
        if isinstance(value, list | tuple):
            found = [self._plain(each, replicated) for each in value]
            return found[0] if len(found) == 1 else found
        if value is None or isinstance(value, str):
            return value
        array = np.asarray(value)
        if replicated and array.ndim > 2:  # [iterations, replicas, batch, ...]
            return array.reshape(len(array), -1, *array.shape[3:])
        has_replicas = replicated and array.ndim > 0 and array.shape[-1] == self._replicas
        return np.asarray(array.mean(-1)) if has_replicas else array

    @staticmethod
    @contextlib.contextmanager
    def nothing() -> Iterator[None]:
        """Stands in for a context, and does nothing."""
        yield

    def variables(self, session: Any) -> None:
        """Notes the variables of the model, by their names."""
        import tensorflow.compat.v1 as v1

        found = [v for v in v1.global_variables() if not any(word in v.op.name for word in OF_OPTIMIZERS)]
        self("variables", session.run({self.named(v.op.name): v for v in found}))

    @staticmethod
    def named(name: str) -> str:
        """The name of a variable without what only TensorFlow adds to it."""
        return SCOPES_OF_LOOPS.sub("net/", name)


def check(plan: Plan) -> list[str]:
    """A line for each difference; none where both do the same. The first is "refused ..." where the API refuses."""
    wanted, got = (run(plan, plain) for plain in (True, False))
    if isinstance(wanted, str):
        return [f"oracle: {wanted}"]
    if isinstance(got, str):
        return [f"{'refused' if any(word in got for word in REFUSALS) else 'Error'}: {got}"]
    return differences(got, wanted, roundings=ROUNDINGS)


def run(plan: Plan, plain: bool) -> list[tuple[str, Any]] | str:
    """The results that the program notes, or a text that says how it ended otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PLAIN_REPLICAS": plan["replicas"], "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
        code, output = forking.run(_run, str(plan), plain, folder, **environment)
        try:
            with open(f"{folder}/notes", "rb") as file:
                found: list[tuple[str, Any]] | str = pickle.load(file)
                return found
        except OSError:
            return f"crash: the process ended with {code}: {output[-300:]}"


def _run(line: str, plain: bool, folder: str) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    plan = Plan.read(line)
    result: Any
    try:
        result = noted(plan, plain, folder)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        result = f"{type(error).__name__}: {' '.join(str(error).split())[:600]} ({last.filename}:{last.lineno})"
    with open(f"{folder}/notes", "wb") as file:
        pickle.dump(result, file)


def noted(plan: Plan, plain: bool, folder: str) -> list[tuple[str, Any]]:
    """The results that a plan's program notes in this process."""
    import tensorflow.compat.v1 as v1

    if plan["v2"] == "off":
        v1.disable_v2_behavior()
    if plain:
        from tests.programs_tf1.plain_ipu import install

        install()
    from tensorflow.python import ipu

    names: dict[str, Any] = {}
    exec(compile(source(plan), "<program>", "exec"), names)
    note = Notes(1 if plain else int(plan["replicas"]))
    with v1.Graph().as_default():
        names["program"](v1, np, ipu, note, folder)
    return note.items
