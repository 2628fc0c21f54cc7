"""The verdict on each chip: whether the program fits, the spare capacity, and the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from engine.profile.prediction import PARTS, cycles_of_parts, error_basis, prediction_error, trust_in_cycles
from engine.profile.program_estimate import Estimate
from engine.profile.streams import host_cycles
from engine.report.records import fields_of
from engine.target import Target, target

CHIPS = ("ipu1", "ipu2", "bow", "c600")
BESIDE_THE_DIE = frozenset(
    {
        *("name", "title", "clock_hz", "external_sync_hop_seconds", "link_bytes_per_second"),
        *("host_to_device_bytes_per_second", "device_to_host_bytes_per_second", "streaming_memory_bytes"),
        *("gateway_link_bytes_per_second", "gateway_link_latency_seconds", "ipus_per_link_domain"),
    }
)
"""Quantities in which chips of one die differ; they affect only the time of a cycle and transfers off the chip."""


def on_other_chips(
    found: Estimate, again: Callable[[Target], Estimate] | None, chips: Sequence[str] = CHIPS
) -> list[Estimate]:
    """Cost reports of a program on the other chips, computed by `again`; without it only on chips of the same die.

    Chips of one die share a cost report because it is slow to compute. They do not share it if the step uses links or
    streaming memory, whose transfers do not scale with the clock.
    """
    estimates = [found]
    for name in chips:
        chip = target(name)
        if name == found.target.name:
            continue
        alone = found.pipeline is None and found.replicas == 1 and not found.assumptions.offloaded
        like = next((each for each in estimates if alone and _die(each.target) == _die(chip)), None)
        if like is not None:
            estimates.append(replace(like, target=chip, host=host_cycles(*found.host_bytes, chip)))
        elif again is not None:
            estimates.append(again(chip))
    return estimates[1:]


def _die(chip: Target) -> tuple[Any, ...]:
    return tuple(getattr(chip, field.name) for field in fields(chip) if field.name not in BESIDE_THE_DIE)


def verdict(estimate: Estimate) -> dict[str, Any]:
    """One chip's row: `margin_bytes` is the spare bytes of the fullest tile, negative if the program does not fit."""
    return {
        **fields_of(estimate.target, "name", "title", "tiles", "bytes_per_tile", "clock_hz"),
        **fields_of(estimate, "fits", "seconds_per_step", "samples_per_second"),
        "worst_tile": estimate.memory.peak_tile,
        "peak_bytes": estimate.memory.peak_fullest,
        "margin_bytes": estimate.target.bytes_per_tile - estimate.memory.peak_fullest,
        "cycles": cycles(estimate),
    }


def verdicts(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """The chips' rows: those of CHIPS in order, then all others."""
    order = {name: position for position, name in enumerate(CHIPS)}
    return [verdict(each) for each in sorted(estimates, key=lambda a: order.get(a.target.name, len(order)))]


def cycles(estimate: Estimate) -> dict[str, Any]:
    """The parts of a step in tile clock cycles, their sum `total`, its relative `error`, and `errors` of the parts."""
    errors = prediction_error(estimate)
    return {
        **cycles_of_parts(estimate),
        "total": estimate.cycles_per_step,
        "error": errors["total"],
        "errors": {part: errors[part] for part in PARTS},
        "basis": error_basis(trust_in_cycles(estimate)),
    }
