"""Checks that loops which accumulate gradients run for whole updates, and removes their marks."""

from __future__ import annotations

from engine.errors import StepCountError
from engine.ir import Computation, Instruction, Module
from engine.ir.device_operations import ACCUMULATION_ITERATION, config_of, target_of
from engine.ir.trip_counts import TripCounts
from engine.passes.constant_folding import constant_folding
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import rewrite
from engine.passes.run_passes import run_passes
from engine.passes.simplify_arithmetic import simplify_arithmetic


def without_accumulation_iterations(module: Module) -> Module:
    """The module without marks.

    Raises StepCountError for gradients that are accumulated outside of a loop, or in one whose number of iterations
    is known and not a multiple of the number of batches in an update.
    """
    found = [i for c in module.computations() for i in c.instructions if _is_mark(i)]
    if not found:
        return module
    # TensorFlow's conditions are recognised only once simplified.
    plain = run_passes(module, (inline_calls, constant_folding, simplify_arithmetic))
    _check(plain.entry, None, TripCounts(plain), set())
    return rewrite(module, lambda _, each: each.operands[0] if _is_mark(each) else None)


def _is_mark(instruction: Instruction) -> bool:
    return target_of(instruction) == ACCUMULATION_ITERATION


def _check(computation: Computation, loop: Instruction | None, counts: TripCounts, seen: set[Computation]) -> None:
    """Checks the marks of a computation that runs in each iteration of `loop`, or outside of all loops."""
    for instruction in computation.instructions:
        if _is_mark(instruction):
            batches = config_of(instruction)["num_mini_batches"]
            if loop is None:
                raise StepCountError(
                    f"Expected gradient accumulation inside a training loop. Received: gradients of {batches} mini "
                    f"batches that are accumulated outside of any loop. Put the step into ipu.loops.repeat or a "
                    f"`for _ in tf.range(n)` in the tf.function."
                )
            iterations = counts.iterations(loop)
            if iterations is not None and iterations % batches:
                nearest = max(1, round(iterations / batches)) * batches
                raise StepCountError(
                    f"Expected a number of iterations that is a multiple of the number of mini batches. Received: "
                    f"Detected a gradient accumulation operation with {batches} number of mini batches inside a loop "
                    f"with {iterations} iterations. Nearest: {nearest} iterations."
                )
        for called in instruction.called:
            inside = instruction if instruction.opcode == "while" else loop
            if called not in seen:
                seen.add(called)
                _check(called, inside, counts, seen)
