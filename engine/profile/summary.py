"""The cost report as a table for readers who are new to the chip."""

from __future__ import annotations

from textwrap import wrap

from engine.profile.prediction import (
    PARTS,
    cycles_of_parts,
    error_basis,
    prediction_error,
    trust_in_bytes,
    trust_in_cycles,
)
from engine.profile.step_costs import StepCosts

WIDTH = 88
BAR = 30


def summary(estimate: StepCosts) -> str:
    """The cost report in about twenty lines of at most 88 characters: chip, memory, cycles, time, costliest, error."""
    lines = [
        _chip(estimate),
        *_memory(estimate),
        *_cycles(estimate),
        _time(estimate),
        *([] if estimate.pipeline is None else estimate.pipeline.table().splitlines()),
        *_costliest(estimate),
    ]
    return "\n".join([*lines, *_honesty(estimate)])


def _chip(estimate: StepCosts) -> str:
    target = estimate.target
    number = 1 if estimate.pipeline is None else len(estimate.pipeline.ipus)
    each = "one IPU," if number == 1 else f"{number} IPUs of"
    if estimate.replicas > 1:
        each = f"{estimate.replicas} replicas, each" + (f" {number} IPUs of" if number > 1 else "")
    return _cut(
        f"One step on {target.title} ({target.name}): {each} {target.tiles:,} tiles, {target.clock_hz / 1e9:.2f} GHz"
    )


def _memory(estimate: StepCosts) -> list[str]:
    memory, capacity = estimate.memory, estimate.target.bytes_per_tile
    share = memory.peak_fullest / capacity
    verdict = "fits" if estimate.fits else f"DOES NOT FIT, {memory.peak_fullest - capacity:,} bytes over"
    where = estimate.costs[memory.peak_at].label if estimate.costs else "the start"
    largest = sorted(memory.always_live.items(), key=lambda item: -item[1])[:2]
    kinds = ", ".join(f"{kind} {_bytes(size)}" for kind, size in largest if size)
    return [
        f"Memory: {verdict}; fullest tile at {share:.1%} of {capacity:,} bytes{_of_ipu(estimate)}",
        f"  {'bytes per tile':<17}{'mean':>12}{'fullest':>12}",
        _cut(f"  {'always live':<17}{memory.always_live_mean:>12,.0f}{memory.always_live_fullest:>12,}  {kinds}"),
        _cut(f"  {'peak':<17}{memory.peak_mean:>12,.0f}{memory.peak_fullest:>12,}  at {where}"),
    ]


def _of_ipu(estimate: StepCosts) -> str:
    """Words for the IPU of a pipeline whose memory the report has, or ""."""
    if estimate.pipeline is None:
        return ""
    return f", on IPU {max(estimate.pipeline.ipus, key=lambda each: each.estimate.memory.peak_fullest).ipu}"


def _cycles(estimate: StepCosts) -> list[str]:
    costs, where = estimate.costs, "on the chip"
    if estimate.pipeline is not None:
        costs, where = estimate.pipeline.costs, "through the pipeline"
    whole = estimate.cycles_per_step
    lines = [f"Cycles per step: {whole:,}, {estimate.cycles:,} of them {where} in {len(costs):,} compute sets"]
    for part, cycles in cycles_of_parts(estimate).items():
        share = cycles / max(1, whole)
        name = "host transfer" if part == "host" else part
        lines.append(f"  {name:<17}{cycles:>12,}{share:>12.0%}  {'#' * round(share * BAR)}".rstrip())
    fed, returned = estimate.host_bytes
    beside = f", {estimate.host:,} cycles beside the rest" if estimate.exposed_host < estimate.host else ""
    return [*lines, f"  {_bytes(fed)} from the host, {_bytes(returned)} to it{beside}"]


def _time(estimate: StepCosts) -> str:
    return (
        f"Time per step: {_seconds(estimate.seconds_per_step)} with host transfer; "
        f"{estimate.steps_per_second:,.0f} steps/s, {estimate.samples_per_second:,.0f} samples/s"
    )


def _costliest(estimate: StepCosts) -> list[str]:
    top = estimate.top(5)
    if not top:
        return []
    # A pipeline's IPUs work concurrently: the whole is the work of all of them.
    pipeline = estimate.pipeline
    whole = estimate.cycles_per_step if pipeline is None else sum(cost.cycles for cost in pipeline.costs)
    title = "Costliest" if pipeline is None else "Costliest, share of the work of all IPUs"
    lines = [f"{title:<50}{'cycles':>12}{'share':>8}"]
    for label, number, cycles in top:
        times = f" (x{number})" if number > 1 else ""
        width = 47 - len(times)
        name = (label if len(label) <= width else "..." + label[3 - width :]) + times
        lines.append(f"  {name:<48}{cycles:>12,}{cycles / max(1, whole):>8.0%}")
    return lines


def _honesty(estimate: StepCosts) -> list[str]:
    """Errors against published measurements, and the parts without a measurement."""
    errors = prediction_error(estimate)
    parts = ", ".join(f"{part} ± {errors[part]:.0%}" for part in PARTS)
    basis = error_basis(trust_in_cycles(estimate)) or "nothing to do"
    held = trust_in_bytes(estimate)
    lines = wrap(f"Estimated, not measured: ± {errors['total']:.0%} for the whole ({basis}).", WIDTH)
    lines += wrap(f"Bytes: ± {held.error:.0%} ({error_basis((held,))}).", WIDTH)
    rest = f"Largest errors of parts against figures held out: {parts}."
    if estimate.unknown_loops:
        loops = "1 loop" if estimate.unknown_loops == 1 else f"{estimate.unknown_loops} loops"
        rest += f" Unknown trip count, counted once: {loops}."
    if estimate.shards > 1:
        rest += f" The {estimate.shards} shards of a replica count as one chip, which holds what all of them hold."
    if estimate.assumed:
        rest += f" Rates assumed for: {', '.join(estimate.assumed)}."
    return [*lines, *wrap(rest, WIDTH)]


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
