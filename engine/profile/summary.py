"""The cost report as a table for readers who are new to the chip."""

from __future__ import annotations

from textwrap import wrap

from engine.profile.prediction import PARTS, cycles_of_parts, error_basis, prediction_error, whole_model_errors
from engine.profile.step_costs import StepCosts

WIDTH = 88
BAR = 30


def summary(account: StepCosts) -> str:
    """The cost report in about twenty lines of at most 88 characters: chip, memory, cycles, time, costliest, error."""
    lines = [
        _chip(account),
        *_memory(account),
        *_cycles(account),
        _time(account),
        *_pipeline(account),
        *_costliest(account),
    ]
    return "\n".join([*lines, *_honesty(account)])


def _chip(account: StepCosts) -> str:
    target = account.target
    number = 1 if account.pipeline is None else len(account.pipeline.ipus)
    each = "one IPU," if number == 1 else f"{number} IPUs of"
    if account.replicas > 1:
        each = f"{account.replicas} replicas, each" + (f" {number} IPUs of" if number > 1 else "")
    return _cut(
        f"One step on {target.title} ({target.name}): {each} {target.tiles:,} tiles, {target.clock_hz / 1e9:.2f} GHz"
    )


def _memory(account: StepCosts) -> list[str]:
    memory, room = account.memory, account.target.bytes_per_tile
    share = memory.peak_fullest / room
    verdict = "fits" if account.fits else f"DOES NOT FIT, {memory.peak_fullest - room:,} bytes over"
    where = account.costs[memory.peak_at].label if account.costs else "the start"
    largest = sorted(memory.always_live.items(), key=lambda item: -item[1])[:2]
    kinds = ", ".join(f"{kind} {_bytes(size)}" for kind, size in largest if size)
    return [
        f"Memory: {verdict}; fullest tile at {share:.1%} of {room:,} bytes{_of_ipu(account)}",
        f"  {'bytes per tile':<17}{'mean':>12}{'fullest':>12}",
        _cut(f"  {'always live':<17}{memory.always_live_mean:>12,.0f}{memory.always_live_fullest:>12,}  {kinds}"),
        _cut(f"  {'peak':<17}{memory.peak_mean:>12,.0f}{memory.peak_fullest:>12,}  at {where}"),
    ]


def _of_ipu(account: StepCosts) -> str:
    """Words for the IPU of a pipeline that memory is reported of; empty without one."""
    if account.pipeline is None:
        return ""
    return f", on IPU {max(account.pipeline.ipus, key=lambda each: each.account.memory.peak_fullest).ipu}"


def _pipeline(account: StepCosts) -> list[str]:
    return [] if account.pipeline is None else account.pipeline.table().splitlines()


def _cycles(account: StepCosts) -> list[str]:
    costs, where = account.costs, "on the chip"
    if account.pipeline is not None:
        costs, where = account.pipeline.costs, "through the pipeline"
    whole = account.cycles_per_step
    lines = [f"Cycles per step: {whole:,}, {account.cycles:,} of them {where} in {len(costs):,} compute sets"]
    for part, cycles in cycles_of_parts(account).items():
        share = cycles / max(1, whole)
        name = "host transfer" if part == "host" else part
        lines.append(f"  {name:<17}{cycles:>12,}{share:>12.0%}  {'#' * round(share * BAR)}".rstrip())
    fed, returned = account.host_bytes
    beside = f", {account.host:,} cycles beside the rest" if account.exposed_host < account.host else ""
    return [*lines, f"  {_bytes(fed)} from the host, {_bytes(returned)} to it{beside}"]


def _time(account: StepCosts) -> str:
    return (
        f"Time per step: {_seconds(account.seconds_per_step)} with host transfer; "
        f"{account.steps_per_second:,.0f} steps/s, {account.samples_per_second:,.0f} samples/s"
    )


def _costliest(account: StepCosts) -> list[str]:
    top = account.top(5)
    if not top:
        return []
    # A pipeline's IPUs work concurrently: the share is of the work of all of them.
    pipeline = account.pipeline
    whole = account.cycles_per_step if pipeline is None else sum(cost.cycles for cost in pipeline.costs)
    title = "Costliest" if pipeline is None else "Costliest, share of the work of all IPUs"
    lines = [f"{title:<50}{'cycles':>12}{'share':>8}"]
    for label, number, cycles in top:
        times = f" (x{number})" if number > 1 else ""
        name = _cut(label, 47 - len(times)) + times
        lines.append(f"  {name:<48}{cycles:>12,}{cycles / max(1, whole):>8.0%}")
    return lines


def _honesty(account: StepCosts) -> list[str]:
    """Errors against published measurements, and what lacks a measurement."""
    errors = prediction_error(account)
    parts = ", ".join(f"{part} ± {errors[part]:.0%}" for part in PARTS)
    basis = error_basis(errors["total"], whole_model_errors())
    lines = _wrapped(f"Estimated, not measured: ± {errors['total']:.0%} for the whole ({basis}).")
    rest = f"Largest errors against published figures: {parts}."
    if account.unknown_loops:
        loops = "1 loop" if account.unknown_loops == 1 else f"{account.unknown_loops} loops"
        rest += f" Unknown trip count, counted once: {loops}."
    if account.assumed:
        rest += f" Rates assumed for: {', '.join(account.assumed)}."
    return [*lines, *_wrapped(rest)]


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


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH)
