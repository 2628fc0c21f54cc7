"""The report as plain JSON data; docs/report.md and schema.json describe its keys."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from typing import Any

from engine.ir.op_names import in_gradient_scope
from engine.profile.levers import Lever
from engine.profile.program_estimate import Estimate
from engine.profile.scaling import assumptions_of, predict, workload_of
from engine.profile.summary import summary
from engine.profile.validation import Measurement, bounds, measurements
from engine.report.advice import advice
from engine.report.operations import amp_flops, operation_rows, whole_step
from engine.report.program_tree import program_tree
from engine.report.records import fields_of
from engine.report.tile_map import tensor_rows, work_rows
from engine.report.verdicts import cycles, verdicts
from engine.target import Target, quantities

FORMAT = "software-ipu report"
VERSION = 1
TARGET = ("name", "title", "tiles", "bytes_per_tile", "clock_hz")
MEMORY = ("always_live_mean", "always_live_fullest", "peak_mean", "peak_fullest", "peak_tile", "peak_at")
PIPELINE = ("schedule", "stages", "micro_batches", "training", "cycles", "period", "bubble_share")
PART = ("kind", "stage", "compute", "exchange", "sync", "links", "cycles", "received_bytes")
ROWS = 4000
"""Most rows of a schedule in a report."""
PREDICTION = ("replicas", "ipus", "samples_per_second", "gradient_share", "efficiency", "algorithm", "fits")
TENSORS = 4000
"""Most tensors that the report names, the largest ones; its sums include all tensors."""


@dataclass(frozen=True, slots=True)
class Feeding:
    """Measurements of a run's queues on this machine: number of waits, and seconds of waits for the infeed."""

    executions: int = 0
    infeed_waits: int = 0
    infeed_seconds: float = 0.0
    outfeed_waits: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a report: the cost reports of a program on one chip and on `others`.

    `failure` is the text of the error that kept the program from running, `levers` are the changes that would make it
    fit. Replicas would add up `gradient_bytes`; those of a pipeline are in its cost report. `source` returns the line
    of the user's program for an op_name, "" if it is unknown.
    """

    name: str
    estimate: Estimate
    others: tuple[Estimate, ...] = ()
    feeding: Feeding | None = None
    failure: str = ""
    levers: tuple[Lever, ...] = ()
    gradient_bytes: int = 0
    seeds: Mapping[str, int] = field(default_factory=dict)
    source: Callable[[str], str] = lambda op_name: ""


def report_data(subject: Subject) -> dict[str, Any]:
    """All data of a report, as schema.json describes them."""
    estimate, source = subject.estimate, subject.source
    rows = operation_rows(estimate.costs, estimate, source)
    data: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": subject.name,
        "program": estimate.program_name,
        "failure": subject.failure,
        "fits": estimate.fits,
        "target": {**fields_of(estimate.target, *TARGET), "ipus": _chips(estimate)},
        "replicas": estimate.replicas,
        "targets": verdicts((estimate, *subject.others)),
        "cycles": cycles(estimate),
        "speed": _speed(estimate),
        "tiles": _tiles(estimate),
        "memory": _memory(estimate, subject.levers),
        **_on_tiles(estimate, rows, source, estimate.pipeline is not None),
        "operations": rows if estimate.pipeline is None else operation_rows(whole_step(estimate), estimate, source),
        "by_ipu": _by_ipu(estimate, source),
        "supersteps": [] if estimate.pipeline is None else rows,
        "exchange": _exchange(estimate),
        "host": _host(estimate, subject.feeding),
        "pipeline": _pipeline(estimate),
        "scaling": _scaling(estimate, subject.gradient_bytes),
        "limits": {"assumed": list(estimate.assumed), **fields_of(estimate, "unknown_loops", "shards")},
    }
    data["advice"] = [asdict(each) for each in advice(data, estimate)]
    data["about"] = about(estimate.target, subject.seeds)
    data["summary"] = summary(estimate)
    return data


def _speed(estimate: Estimate) -> dict[str, Any]:
    flops, partials, chips = amp_flops(estimate), estimate.assumptions.partials_type, _chips(estimate)
    seconds, target = estimate.seconds_per_step, estimate.target
    # Seconds that the matrix engines would need at their peak, for the types that are multiplied.
    needed = sum(flop / (chips * target.peak_flops(kind, partials)) for kind, flop in flops.items())
    return {
        "seconds_per_step": seconds,
        "steps_per_second": estimate.steps_per_second,
        "samples_per_step": estimate.samples_per_replica * estimate.replicas,
        "samples_per_second": estimate.samples_per_second,
        "amp_flop": flops,
        "partials_type": partials,
        "amp_peak_share": needed / seconds if seconds and flops else None,
    }


def _by_ipu(estimate: Estimate, source: Callable[[str], str]) -> list[dict[str, Any]]:
    """The figures that the report's top level has of the fullest IPU, for each IPU of a pipeline."""
    ipus = [] if estimate.pipeline is None else estimate.pipeline.ipus
    return [_of_ipu(each.ipu, each.estimate, source) for each in ipus if isinstance(each.estimate, Estimate)]


def _of_ipu(ipu: int, estimate: Estimate, source: Callable[[str], str]) -> dict[str, Any]:
    rows = operation_rows(estimate.costs, estimate, source)
    return {
        "ipu": ipu,
        "tiles": _tiles(estimate),
        "memory": _memory(estimate, ()),
        **_on_tiles(estimate, rows, source, in_pipeline=True),
        "supersteps": rows,
    }


def _on_tiles(
    estimate: Estimate, rows: list[dict[str, Any]], source: Callable[[str], str], in_pipeline: bool
) -> dict[str, Any]:
    """The sections on arrays, the tiles of compute sets, and the tree of the program."""
    chosen, backward = _shown(estimate), [in_gradient_scope(cost.op_name) for cost in estimate.costs]
    return {
        "liveness": _liveness(estimate, chosen, source),
        "work": work_rows(estimate, chosen),
        "tree": program_tree(rows, estimate.regions, backward, in_pipeline),
    }


def _chips(estimate: Estimate) -> int:
    """Number of IPUs of one replica."""
    return 1 if estimate.pipeline is None else len(estimate.pipeline.ipus)


def _tiles(estimate: Estimate) -> list[dict[str, int]]:
    tiles = estimate.tiles
    always, peak, peak_at = (each.tolist() for each in (tiles.always_live_bytes, tiles.peak_bytes, tiles.peak_at))
    return [
        {"tile": number, "always_live_bytes": fixed, "peak_bytes": most, "peak_at": at}
        for number, (fixed, most, at) in enumerate(zip(always, peak, peak_at, strict=True))
    ]


def _memory(estimate: Estimate, levers: Sequence[Lever]) -> dict[str, Any]:
    memory = estimate.memory
    return {
        "limit_bytes": estimate.target.bytes_per_tile,
        **fields_of(memory, *MEMORY),
        "peak_at_name": estimate.costs[memory.peak_at].label if estimate.costs else "the start",
        "categories": {name: each.tolist() for name, each in estimate.tiles.categories.items() if each.any()},
        "largest": [fields_of(t, "name", "shape", "bytes", "always_live") for t in memory.largest[:20]],
        "levers": [
            fields_of(each, "what", "fits", "alone") | {"saves_bytes": each.saves, "how": list(each.how)}
            for each in levers
        ],
    }


def _liveness(estimate: Estimate, chosen: Sequence[int], source: Callable[[str], str]) -> dict[str, Any]:
    """Bytes on the whole chip at each compute set, and the chosen tensors by their numbers."""
    return {
        "always_live_bytes": int(estimate.tiles.always_live_bytes.sum()),
        "live_bytes": list(estimate.memory.live_bytes),
        "tensors_in_all": len(estimate.liveness),
        "tensors": tensor_rows(estimate, chosen, source),
    }


def _shown(estimate: Estimate) -> list[int]:
    """Choose at most TENSORS tensors, by number, the largest first.

    Tensors live at the peak come first, then those large for long, then the largest of all others.
    """
    tensors, peak_at = estimate.liveness, estimate.memory.peak_at
    order = sorted(range(len(tensors)), key=lambda n: (-tensors[n].bytes, tensors[n].first, tensors[n].name))
    if len(order) <= TENSORS:
        return order
    at_peak = {n for n in order if tensors[n].always_live or tensors[n].first <= peak_at <= tensors[n].last}
    rest = [n for n in order if n not in at_peak]
    chosen = [n for n in order if n in at_peak][: TENSORS // 2]
    # Large for long: tensors that are kept from the forward to the backward pass.
    chosen += sorted(rest, key=lambda n: -tensors[n].bytes * (tensors[n].last - tensors[n].first + 1))[: TENSORS // 4]
    picked = set(chosen)
    chosen += [n for n in rest if n not in picked][: TENSORS - len(chosen)]
    places = {number: place for place, number in enumerate(order)}
    return sorted(chosen, key=places.__getitem__)


def _exchange(estimate: Estimate) -> dict[str, Any]:
    """Cycles of exchanges on the chip and between chips, and the bytes that the busiest tile receives."""
    target, costs = estimate.target, [cost for cost in whole_step(estimate) if cost.exchange]
    sending = sum(max(0, cost.exchange - cost.runs * target.exchange_start_cycles) for cost in costs)
    return {
        "on_chip_cycles": sum(cost.exchange for cost in costs),
        "between_ipus_cycles": estimate.between_ipus[0],
        "between_ipus_sync_cycles": estimate.between_ipus[1],
        "start_cycles": sum(cost.runs * target.exchange_start_cycles for cost in costs),
        "received_bytes_busiest_tile": sending * target.exchange_bytes_per_cycle,
        "bytes_per_cycle": target.exchange_bytes_per_cycle,
    }


def _host(estimate: Estimate, feeding: Feeding | None) -> dict[str, Any]:
    fed, returned = estimate.host_bytes
    whole = estimate.cycles_per_step
    return {
        "bytes_in": fed,
        "bytes_out": returned,
        "cycles": estimate.host,
        "share": estimate.exposed_host / whole if whole else 0.0,
        "in_bytes_per_second": estimate.target.host_to_device_bytes_per_second,
        "out_bytes_per_second": estimate.target.device_to_host_bytes_per_second,
        "measured": asdict(feeding) if feeding is not None else None,
    }


def _pipeline(estimate: Estimate) -> dict[str, Any] | None:
    """The pipeline section of a report's data; None for a program that is not a pipeline."""
    pipeline = estimate.pipeline
    if pipeline is None:
        return None
    return {
        **fields_of(pipeline, *PIPELINE),
        "between_ipus_cycles": pipeline.between_ipus[0],
        "between_ipus_sync_cycles": pipeline.between_ipus[1],
        "rows_in_all": len(pipeline.rows),
        "rows": [
            fields_of(row, "slot", "ipu", "stage", "kind", "micro_batch", "cycles") | {"begin": row.start}
            for row in pipeline.rows[:ROWS]
        ],
        "ipus": [
            {
                **fields_of(each, "ipu", "stash_bytes", "fits"),
                "stages": list(each.stages),
                "busy_cycles": each.busy,
                "bubble_share": each.waits,
                "peak_bytes": each.estimate.memory.peak_fullest,
                "always_live_bytes": each.estimate.memory.always_live_fullest,
            }
            for each in pipeline.ipus
        ],
        "parts": [fields_of(part, *PART) for part in pipeline.parts],
    }


def _scaling(estimate: Estimate, gradient_bytes: int) -> dict[str, Any] | None:
    """The scaling section of a report's data; None without gradients and for a program on several replicas."""
    if estimate.replicas > 1:
        return None
    workload = workload_of(estimate, gradient_bytes)
    if not workload.gradient_bytes:
        return None
    return {
        "gradient_bytes": workload.gradient_bytes,
        "samples_of_replica": workload.samples * workload.accumulation,
        "assumptions": assumptions_of(estimate.target),
        "rows": [
            fields_of(each, *PREDICTION) | {"seconds_per_update": each.seconds, "peak_bytes": each.bytes}
            for each in predict(workload, estimate.target)
        ],
    }


BOUND = ("group", "held_out", "rms", "worst", "worst_name")
MEASUREMENT = ("name", "published", "estimate", "unit", "error", "fitted", "source", "caveat")
PACKAGES = ("tensorflow", "keras", "tf-keras", "numpy", "numba")


def about(target: Target, seeds: Mapping[str, int]) -> dict[str, Any]:
    """The "about" section of a report's data; `seeds` are by the name of the generator."""
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seeds": dict(seeds),
        "parameters": parameters(target),
        "calibration": calibration(),
        "bounds": [fields_of(each, *BOUND) for each in bounds().values()],
    }


def versions() -> dict[str, str]:
    """Versions of this project, of Python and of those PACKAGES that are installed."""
    found = {"software-ipu": _version("software-ipu"), "python": platform.python_version()}
    found |= {name: version for name in PACKAGES if (version := _version(name))}
    return found


def parameters(target: Target) -> list[dict[str, Any]]:
    """Each quantity of the chip, with its value and source."""
    rows, names = quantities(), {field.name for field in fields(Target)}
    return [
        {"name": name, "value": getattr(target, name), "source": str(row.get("source", ""))}
        for name, row in rows.items()
        if name in names
    ]


def calibration() -> list[dict[str, Any]]:
    """The published measurements with the model's estimates, in groups."""
    groups: dict[str, list[Measurement]] = {}
    for each in measurements():
        groups.setdefault(each.group, []).append(each)
    return [
        {
            "group": group,
            "least_error": min(each.error for each in members),
            "largest_error": max(each.error for each in members),
            "rows": [fields_of(each, *MEASUREMENT) for each in members],
        }
        for group, members in groups.items()
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
