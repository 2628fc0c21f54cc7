"""Reduction of a failing program: the result of a removed step becomes an input with XLA's value for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.fuzz.oracle import check
from tests.fuzz.program import Program, Step, run_line
from tests.fuzz.runs import Different, RefusedByXLA, compiled

Fails = Callable[[Program], bool]


def shrink(program: Program, failure: Exception) -> Program:
    """The smallest program found that still fails in the same way: the same class of error."""
    try:
        values = dict(program.inputs) | dict(zip((s.name for s in program.steps), _values(program), strict=True))
    except RefusedByXLA:
        return program
    names = getattr(failure, "names", ()) or tuple(program.results)
    complete = {s.name for s in program.steps} <= {*program.results}

    def made(steps: list[Step]) -> Program:
        kept = {s.name for s in steps}
        read = {name for s in steps for name in s.operands}
        results = [s.name for s in steps] if complete else [s.name for s in steps if s.name not in read]
        results = results if complete else [*results, *(n for n in names if n in kept and n in read)]
        return program.cut(steps, values, results)

    def fails(steps: list[Step]) -> bool:
        try:
            check(made(steps))
        except RefusedByXLA:
            return False
        except Exception as error:
            return type(error) is type(failure)
        return False

    for step in program.steps:
        if step.name in names and fails([step]):
            return made([step])
    steps = list(program.steps)
    if not fails(steps):
        return program
    return made(_removed(steps, fails))


def _values(program: Program) -> list[np.ndarray]:
    def everything(*values: tf.Tensor) -> list[tf.Tensor]:
        env = dict(zip(program.inputs, values, strict=True))
        for step in program.steps:
            env[step.name] = run_line(step.expression, env)
        return [tf.identity(env[step.name]) for step in program.steps]

    return compiled(everything)(*program.inputs.values())


def _removed(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Removes ever smaller runs of steps, as long as the program still fails."""
    size = max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(steps) and len(steps) > 1:
            rest = steps[:at] + steps[at + size :]
            if rest and fails(rest):
                steps = rest
            else:
                at += size
        if size == 1:
            return steps
        size //= 2


def report(program: Program, failure: Exception) -> str:
    """The smallest failing program, as text, with the values of small inputs."""
    assert not isinstance(failure, RefusedByXLA)
    small = shrink(program, failure)
    try:
        check(small)
        message = str(failure)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    inputs = [f"{name} = {x!r}" for name, x in small.inputs.items() if x.size <= 40]
    kind = "differs" if isinstance(failure, Different) else type(failure).__name__
    return "\n".join([f"seed {program.seed} {kind}", small.source(), *inputs, message])
