"""Random modules, changed in random places: python -m tests.fuzz.mutants --count 1000 [--seed S]

The engine runs them as `engine.evaluate` does. A seed gives the same modules again: `--seed S --count 1`.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.evaluate import evaluate
from engine.ir import Computation, Module, Shape
from engine.ir.printer import print_instruction, print_module
from engine.runtime.executable import Executable
from tests.engine.running import buffers, random_array
from tests.fuzz.distances import EPSILON, TINY
from tests.fuzz.mutations import Mutation
from tests.fuzz.rounding import TooLong, apart, counted, spread_of
from tests.fuzz.seed_modules import seed_module

HANGS_SECONDS = 1800
ENDS = ("same", "refused", "too long")
FEW, MANY = 8, 60
"""Numbers of shifted runs: the first shows most effects of rounding, the second is tried before a result is wrong."""


UNORDERED = frozenset({"convolution", "fft", "sort"})
"""Operations whose results are left open for operands with NaN and infinities."""


def special_array(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Small ordinary numbers, with zeros, infinities, NaN and extremes among them."""
    ordinary = random_array(rng, shape)
    with np.errstate(all="ignore"):
        if shape.dtype.kind in "iu":
            limits = np.iinfo(shape.dtype)
            odd = np.array([0, 1, limits.min, limits.max], shape.dtype)
        else:
            odd = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3e38, -6e4]).astype(shape.dtype)
    return np.where(rng.random(shape.dimensions) < 0.7, ordinary, odd[rng.integers(0, len(odd), shape.dimensions)])


class Mutant:
    """A module and its arguments, made from a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mutation = Mutation(seed_module(rng), rng)
        for _ in range(int(rng.integers(0, 6))):
            mutation.change()
        self.seed, self.module = seed, mutation.module
        opcodes = {i.opcode for c in self.module.computations() for i in c.instructions}
        array = special_array if rng.random() < 0.15 and not opcodes & UNORDERED else None
        shapes = [p.array_shape for p in self.module.entry.parameters]
        self.arguments = [random_array(rng, s) if array is None else array(s, rng) for s in shapes]

    @classmethod
    def of(cls, seed: int, module: Module, arguments: list[np.ndarray]) -> Mutant:
        made = cls.__new__(cls)
        made.seed, made.module, made.arguments = seed, module, arguments
        return made


def check(mutant: Mutant) -> str:
    """ "same", "refused" or "too long"; else the text of how engine and definitions differ."""
    module, arguments = mutant.module, mutant.arguments
    try:
        with counted(), np.errstate(all="ignore"):
            expected = evaluate(module, arguments)
    except TooLong:
        return "too long"
    except UnsupportedOperation:
        return "refused"
    try:
        results = on_engine(module, arguments, verify=mutant.seed % 4 == 0)
    except UnsupportedOperation:
        return "refused"
    with np.errstate(all="ignore"):
        return _difference(module, arguments, results, expected) or "same"


def check_by_xla(mutant: Mutant) -> str:
    """Compares with XLA's results in place of the engine's; "refused" where XLA has no such operations."""
    from tests.fuzz.by_xla import REFUSALS, by_xla

    module, arguments = mutant.module, mutant.arguments
    try:
        with counted(), np.errstate(all="ignore"):
            expected = evaluate(module, arguments)
        results = by_xla(module, arguments)
    except TooLong:
        return "too long"
    except REFUSALS:
        return "refused"
    with np.errstate(all="ignore"):
        return _difference(module, arguments, results, expected) or "same"


def first_wrong(mutant: Mutant, run: Callable[[Mutant], str] = check) -> str:
    """The first instruction of the entry that differs when it is the only result."""
    for instruction in mutant.module.entry.instructions:
        if instruction.opcode in ("parameter", "tuple", "constant") or not isinstance(instruction.shape, Shape):
            continue
        entry = Computation("main", mutant.module.entry.instructions, instruction)
        alone = Mutant.of(mutant.seed, Module("alone", entry), mutant.arguments)
        try:
            end = run(alone)
        except Exception as error:
            end = repr(error)
        if end not in ENDS:
            return f"{print_instruction(instruction)}\n{end:.300}"
    return "none of its instructions alone"


def on_engine(module: Module, arguments: list[np.ndarray], *, verify: bool = True) -> list[np.ndarray]:
    """All results of one step, with parameters as variables. `verify` checks the result of each pass."""
    executable = Executable(build_program(module, ["variable"] * len(arguments), {}, verify=verify))
    held = buffers(arguments)
    outputs = iter(executable.run(1, [], held))
    by_result = {result: held[parameter].read() for parameter, result in module.aliases.items()}
    return [by_result[k] if k in by_result else next(outputs) for k in range(len(module.results))]


def _difference(
    module: Module, arguments: list[np.ndarray], results: list[np.ndarray], expected: tuple[np.ndarray, ...]
) -> str:
    wrong = _wrong(results, expected, [np.zeros(e.shape) for e in expected])
    for runs in (FEW, MANY):
        if not wrong:
            return ""
        wrong = _wrong(results, expected, spread_of(module, arguments, expected, runs))
    return wrong


def _wrong(results: list[np.ndarray], expected: tuple[np.ndarray, ...], spread: list[np.ndarray]) -> str:
    lines = []
    for number, (result, value, allowed) in enumerate(zip(results, expected, spread, strict=True)):
        if (result.dtype, result.shape) != (value.dtype, value.shape):
            lines.append(f"result {number}: {result.dtype}{list(result.shape)}, not {value.dtype}{list(value.shape)}")
            continue
        far = apart(result, value)
        wide = np.abs(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64))
        tolerance = (
            4 * allowed
            + TINY.get(value.dtype.name, 2.0**-126)
            + 4 * EPSILON.get(value.dtype.name, 0) * np.where(np.isfinite(wide), wide, 0)
        )
        bad = (far > tolerance) | (np.isinf(far) & ~np.isinf(allowed))
        if bad.any():
            at = np.unravel_index(int(np.argmax(np.where(bad, far, -1))), bad.shape)
            where = list(map(int, at))
            lines.append(
                f"result {number}: {int(bad.sum())} of {bad.size}, at {where} {result[at]!r}, not {value[at]!r}"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many modules")
    parser.add_argument(
        "--seed", type=int, help="of the first module; the next has the next. By default another each time"
    )
    parser.add_argument("--xla", action="store_true", help="run the modules with XLA in place of the engine")
    parser.add_argument("--print", action="store_true", help="print the modules instead of running them")
    arguments = parser.parse_args()
    # Otherwise XLA's fast maximum of NaN and a number is the number.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_enable_fast_min_max=false"
    first = int(time.time()) % 1_000_000 * 1000 if arguments.seed is None else arguments.seed
    print(f"seeds {first} to {first + arguments.count - 1}", flush=True)
    ends: Counter[str] = Counter()
    start = time.perf_counter()
    for seed in range(first, first + arguments.count):
        if arguments.print:
            print(print_module(Mutant(seed).module))
            continue
        faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
        ends[_end(seed, check_by_xla if arguments.xla else check)] += 1
        done = sum(ends.values())
        if done % 50 == 0 or done == arguments.count:
            rate = (time.perf_counter() - start) / done
            print(f"{done}: {dict(ends)}, {rate:.3f} s each", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 1 if ends["FAILED"] else 0


def _end(seed: int, run: Callable[[Mutant], str]) -> str:
    mutant = None
    try:
        mutant = Mutant(seed)
        end = run(mutant)
    except Exception as error:  # every other error is a fault, and the next module is tried
        end = repr(error)
    if end in ENDS:
        return end
    where = "its making" if mutant is None else first_wrong(mutant, run)
    print(f"FAILED --seed {seed} --count 1: {end:.1500}\nfirst: {where}", flush=True)
    return "FAILED"


if __name__ == "__main__":
    sys.exit(main())
