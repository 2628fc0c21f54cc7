"""Three sentences of advice, each with its evidence and its possible gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.profile.program_estimate import Estimate
from engine.profile.step_costs import PipelineEstimate
from engine.report.numbers import count, percent, size
from engine.report.operations import sums_by_name, work_cycles

SENTENCES = 3
WORTH_SAYING = 0.1
"""Share of a step above which a pipeline's bubbles or transfers are worth advice."""
FEW_TILES = 0.25
"""Fraction of the tiles below which a compute set leaves most of the chip idle."""
SCALAR_BYTES = 64
"""Bytes up to which a compute set counts steps or advances seeds: it does not grow with batch or layers."""
UPDATE = " update of "
"""Text in the names of an optimizer's compute sets (engine.profile.names.label_of)."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change and its reason. `section` of the report has the evidence; `gain` is the affected share of a step.

    `operation` is the name of the affected operation, if there is one.
    """

    title: str
    text: str
    section: str
    gain: float
    operation: str = ""


def advice(data: dict[str, Any], estimate: Estimate) -> list[Advice]:
    """The SENTENCES sentences of advice with the largest gain; if memory is too small, advice on memory comes first."""
    found = [each for find in FINDERS for each in find(data, estimate)]
    return sorted(found, key=lambda each: -each.gain)[:SENTENCES]


def _whole(data: dict[str, Any]) -> str:
    """Words for the whole of which operations are shares."""
    return "the step" if data["pipeline"] is None else "the work of all IPUs"


def _memory(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    memory, limit = data["memory"], data["memory"]["limit_bytes"]
    over = memory["peak_fullest"] - limit
    if over <= 0:
        return
    largest = memory["largest"][0] if memory["largest"] else None
    named = f" The largest tensor there is {largest['name']}, {count(largest['bytes'])} bytes." if largest else ""
    yield Advice(
        "Make it fit",
        f"Tile {memory['peak_tile']} is over by {count(over)} bytes at {memory['peak_at_name']}.{named} "
        f"{_remedy(data)}",
        "memory",
        10.0,
    )


def _remedy(data: dict[str, Any]) -> str:
    """Sentences that propose the changes that make a program fit, or say that none do."""
    if data["pipeline"] is not None:
        return "model.plan_pipeline() proposes stages that fit, or says that none do."
    enough = [each for each in data["memory"]["levers"] if each["fits"]]
    if not enough:
        return "Nothing that was estimated makes it fit, alone or together; a smaller model would."
    if enough[0]["alone"]:
        each = "; ".join(f"{lever['what']} ({count(lever['saves_bytes'])} bytes less)" for lever in enough)
        return f"Each of these alone makes it fit: {each}."
    lever = enough[0]
    return (
        f"No change alone makes it fit. Together these do: {lever['what']} ({count(lever['saves_bytes'])} bytes less)."
    )


def _capacity(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    """Advice to enlarge the batch, if all bytes that are not always live grow with it."""
    memory, pipeline = data["memory"], estimate.pipeline
    batch = estimate.samples_per_replica // (1 if pipeline is None else pipeline.micro_batches)
    fixed, peak, limit = memory["always_live_fullest"], memory["peak_fullest"], memory["limit_bytes"]
    syncs = sum(row["sync"] for row in data["operations"])
    overhead = (syncs + data["exchange"]["start_cycles"]) / work_cycles(data)
    if peak > limit or peak <= fixed or batch < 1:
        return
    largest = int(batch * (limit - fixed) / (peak - fixed))
    if largest < 2 * batch:
        return
    power = 1 << (largest.bit_length() - 1)
    what = "batch" if pipeline is None else "micro-batches"
    yield Advice(
        f"Enlarge the {what}",
        f"The fullest tile uses {percent(peak / limit)} of its memory, so about {count(power)} samples instead of "
        f"{count(batch)} would fit, and {percent(overhead)} of {_whole(data)} are syncs and starts of exchanges, which "
        f"cost the same for larger {'batches' if pipeline is None else what}.",
        "memory",
        overhead,
    )


def _host(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    host = data["host"]
    if host["share"] > 0.15:
        overlap = "" if estimate.assumptions.overlapped_io else ", or let I/O tiles overlap it with compute"
        yield Advice(
            "Send less from the host",
            f"The transfer of {size(host['bytes_in'])} in and {size(host['bytes_out'])} out takes "
            f"{percent(host['share'])} of the step. Feed float16 values or 8-bit integers, and convert them on the "
            f"chip{overlap}.",
            "host",
            host["share"],
        )
    measured = host["measured"]
    if measured and measured["infeed_waits"] > 0.2 * max(1, measured["executions"]) and measured["executions"] > 1:
        yield Advice(
            "Prepare data faster",
            f"In the run on this machine {count(measured['infeed_waits'])} of {count(measured['executions'])} "
            f"executions waited for data, {measured['infeed_seconds']:.3g} s in all. Cache or prefetch the data set.",
            "host",
            0.3,
        )


def _precision(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    rows = [row for row in data["operations"] if row["unit"] == "AMP"]
    work, whole = work_cycles(data), _whole(data)
    single = sum(row["compute"] for row in rows if row["dtype"] == "f32")
    target, partials = estimate.target, data["speed"]["partials_type"]
    faster = target.amp_flops_per_cycle("f16", partials) / target.amp_flops_per_cycle("f32")
    if single / work > 0.1 and faster > 1:
        yield Advice(
            "Multiply in half precision",
            f"Products of fp32 take {percent(single / work)} of {whole}; in fp16 the matrix engines are "
            f"{f'{faster:.0f} times' if faster > 2 else 'twice'} as fast. Set the policy mixed_float16.",
            "operations",
            single / work * (1 - 1 / faster),
        )
    half = sum(row["compute"] for row in rows if row["dtype"] == "f16")
    if partials == "f32" and half / work > 0.1:
        yield Advice(
            "Try partial sums in float16",
            f"Products of fp16 with fp32 partial sums take {percent(half / work)} of {whole}; with "
            "partialsType 'half' the matrix engines are twice as fast, at less precision.",
            "operations",
            half / work / 2,
        )


def _grows(row: dict[str, Any]) -> bool:
    """Whether a compute set's work grows with batch or layers: not a counter, a seed or an update."""
    return bool(row["bytes"] > SCALAR_BYTES * row["runs"]) and UPDATE not in row["name"]


def _stragglers(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    tiles, work = estimate.target.tiles, work_cycles(data)
    few = [row for row in data["operations"] if 0 < row["tiles"] < FEW_TILES * tiles and row["compute"] and _grows(row)]
    cycles = sum(row["compute"] for row in few)
    if cycles / work > 0.1:
        worst = max(few, key=lambda row: row["compute"])
        on = "1 tile" if worst["tiles"] == 1 else f"{count(worst['tiles'])} tiles"
        yield Advice(
            "Spread the work over more tiles",
            f"{count(len(few))} compute sets use fewer than a quarter of the tiles and take "
            f"{percent(cycles / work)} of {_whole(data)}; the longest is {worst['name']} on {on}, "
            f"{count(worst['cycles'])} cycles. Larger batches or layers use more tiles.",
            "trace",
            cycles / work * (1 - FEW_TILES),
            worst["name"],
        )


def _costliest(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    sums = sums_by_name(filter(_grows, data["operations"]), "cycles")
    if not sums:
        return
    name, found = min(sums.items(), key=lambda item: (-item[1]["cycles"], item[0]))
    number, cycles = found["rows"], found["cycles"]
    share, times = cycles / work_cycles(data), f", {number} times," if number > 1 else ""
    yield Advice(
        "Begin with the costliest operation",
        f"{name}{times} takes {count(cycles)} cycles, {percent(share)} of {_whole(data)}: more than any other that "
        "depends on batch or layers.",
        "operations",
        min(0.2, share / 2),
        name,
    )


def _exchange(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    cycles, total, exchange = data["cycles"], max(1, data["cycles"]["total"]), data["exchange"]
    share = exchange["on_chip_cycles"] / work_cycles(data)
    if share > 0.4:
        worst = max(data["operations"], key=lambda row: row["exchange"])
        yield Advice(
            "Move less between tiles",
            f"Exchange takes {percent(share)} of {_whole(data)}; about 30 % are usual. The largest is that of "
            f"{worst['name']}, {count(worst['exchange'])} cycles. Use fewer transposes, and layouts that neighbouring "
            "layers share.",
            "exchange",
            share - 0.3,
            worst["name"],
        )
    between = exchange["between_ipus_cycles"] + exchange["between_ipus_sync_cycles"]
    if estimate.pipeline is None and between / total > 0.1:
        yield Advice(
            "Exchange gradients less often",
            f"The sum of gradients over {data['replicas']} replicas takes {percent(between / total)} of the step. "
            "Accumulate more micro-batches before each update.",
            "exchange",
            between / total,
        )
    share = cycles["sync"] / total
    if share > 0.2:
        yield Advice(
            "Give each superstep more to do",
            f"Syncs take {percent(share)} of the step; about 10 % are usual. Its {count(len(data['operations']))} "
            "compute sets are short. Use larger batches, or several small operations in one layer.",
            "trace",
            share - 0.1,
        )


def _bubbles(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    """Advice on the main cause of bubbles: the schedule's ramp, the longest stage, or no overlap."""
    pipeline = estimate.pipeline
    if pipeline is None:
        return
    share, before = pipeline.bubble_share, cycles_before_update(pipeline)
    if share <= WORTH_SAYING or not before:
        return
    what = "update" if pipeline.training else "execution"
    where = "the cycles before the update" if pipeline.training else "an execution"
    text = f"IPUs wait for {percent(share)} of {where}. "
    ramp = max(0, before - pipeline.micro_batches * pipeline.period) / before
    if pipeline.schedule == "Sequential":
        text += "In a Sequential schedule one IPU works at a time; Grouped or Interleaved overlap micro-batches."
        yield Advice("Fill the pipeline", text, "pipeline", share)
    elif ramp >= share / 2:
        text += (
            f"The pipeline fills and drains for {percent(ramp)} of them; more than {pipeline.micro_batches} "
            f"micro-batches for each {what} make that share smaller."
        )
        yield Advice("Fill the pipeline", text, "pipeline", ramp)
    else:
        works = pipeline.works
        longest = max(range(len(works)), key=works.__getitem__)
        text += (
            f"Stage {longest} takes {count(works[longest])} cycles for a micro-batch, the mean is "
            f"{count(sum(works) / len(works))}: move layers out of it, or let model.plan_pipeline() choose the cuts."
        )
        yield Advice("Balance the stages", text, "pipeline", share - ramp)


def _links(data: dict[str, Any], estimate: Estimate) -> Iterator[Advice]:
    """Advice on transfers between a pipeline's IPUs and their syncs."""
    if estimate.pipeline is None:
        return
    (links, syncs), total = estimate.pipeline.between_ipus, max(1, data["cycles"]["total"])
    if (links + syncs) / total > WORTH_SAYING:
        yield Advice(
            "Exchange less between IPUs",
            f"Transfers between IPUs take {percent(links / total)} of the step, their syncs {percent(syncs / total)}. "
            "Cut between layers with small activations. Larger micro-batches need fewer syncs for as many samples.",
            "pipeline",
            (links + syncs) / total,
        )


def cycles_before_update(pipeline: PipelineEstimate) -> int:
    """Cycles from the first micro-batch to the end of the last, of which bubbles are shares."""
    return sum(cost.cycles for cost in pipeline.critical if cost.kind != "update")


FINDERS: tuple[Callable[[dict[str, Any], Estimate], Iterator[Advice]], ...] = (
    *(_memory, _capacity, _host, _precision),
    *(_stragglers, _costliest, _exchange, _bubbles, _links),
)
