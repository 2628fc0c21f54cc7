"""Three sentences of advice, each with what it rests on and what it may bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.profile.account import Account
from engine.report.numbers import count, percent, size

SENTENCES = 3
FEW_TILES = 0.25
"""A compute set on fewer of the tiles leaves most of the chip idle."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do and why; `section` of the report has the evidence, `gain` is the share of a step that it concerns."""

    title: str
    text: str
    section: str
    gain: float


def advice(data: dict[str, Any], account: Account) -> list[Advice]:
    """The three that concern most; what keeps a program from running at all comes first."""
    found = [each for find in FINDERS for each in find(data, account)]
    return sorted(found, key=lambda each: -each.gain)[:SENTENCES]


def _memory(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    memory, limit = data["memory"], data["memory"]["limit_bytes"]
    over = memory["peak_fullest"] - limit
    if over <= 0:
        return
    largest = memory["largest"][0] if memory["largest"] else None
    named = f" The largest tensor there is {largest['name']}, {count(largest['bytes'])} bytes." if largest else ""
    yield Advice(
        "Make it fit",
        f"Tile {memory['peak_tile']} is over by {count(over)} bytes at {memory['peak_at_name']}."
        f"{named}{_helps(memory)}",
        "memory",
        10.0,
    )


def _helps(memory: dict[str, Any]) -> str:
    """The least change that makes a program fit, or else the one that saves most."""
    if not memory["levers"]:
        return (
            " A smaller batch with gradient accumulation, recomputation, half precision or pipeline stages on "
            f"{-(-memory['peak_fullest'] // memory['limit_bytes'])} IPUs may help."
        )
    enough = [each for each in memory["levers"] if each["fits"]]
    chosen = enough[0] if enough else max(memory["levers"], key=lambda each: each["saves_bytes"])
    then = "then it fits" if enough else "not enough by itself"
    return f" Would save {count(chosen['saves_bytes'])} bytes there: {chosen['what']} ({then})."


def _room(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    """Bytes of a step that come and go are taken to grow with the batch."""
    memory, batch = data["memory"], account.samples_per_replica
    fixed, peak, limit = memory["always_live_fullest"], memory["peak_fullest"], memory["limit_bytes"]
    overhead = (data["cycles"]["sync"] + data["exchange"]["start_cycles"]) / max(1, data["cycles"]["total"])
    if peak > limit or peak <= fixed or batch < 1:
        return
    largest = int(batch * (limit - fixed) / (peak - fixed))
    if largest < 2 * batch:
        return
    power = 1 << (largest.bit_length() - 1)
    yield Advice(
        "Enlarge the batch",
        f"The fullest tile uses {percent(peak / limit)} of its memory, so about {count(power)} samples instead of "
        f"{count(batch)} would fit, and {percent(overhead)} of the step are syncs and starts of exchanges, which cost "
        "the same for a larger batch.",
        "memory",
        overhead,
    )


def _host(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    host = data["host"]
    if host["share"] > 0.15:
        yield Advice(
            "Send less from the host",
            f"{percent(host['share'])} of the step are the transfer of {size(host['bytes_in'])} in and "
            f"{size(host['bytes_out'])} out. Feed halves or 8-bit integers and convert them on the chip, or let I/O "
            "tiles overlap it with compute.",
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


def _precision(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    rows = [row for row in data["operations"] if row["unit"] == "AMP"]
    single = sum(row["compute"] for row in rows if row["dtype"] == "f32")
    total = max(1, data["cycles"]["total"])
    target, partials = account.target, data["speed"]["partials_type"]
    faster = target.amp_flops_per_cycle("f16", partials) / target.amp_flops_per_cycle("f32")
    if single / total > 0.1 and faster > 1:
        yield Advice(
            "Multiply in half precision",
            f"Products of fp32 compute for {percent(single / total)} of the step; in fp16 the matrix engines are "
            f"{f'{faster:.0f} times' if faster > 2 else 'twice'} as fast. Set the policy mixed_float16.",
            "operations",
            single / total * (1 - 1 / faster),
        )
    half = sum(row["compute"] for row in rows if row["dtype"] == "f16")
    if partials == "f32" and half / total > 0.1:
        yield Advice(
            "Try partial sums in halves",
            f"Products of fp16 with fp32 partial sums compute for {percent(half / total)} of the step; with "
            "partialsType 'half' the matrix engines are twice as fast, at less precision.",
            "operations",
            half / total / 2,
        )


def _stragglers(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    tiles, total = account.target.tiles, max(1, data["cycles"]["total"])
    few = [row for row in data["operations"] if 0 < row["tiles"] < FEW_TILES * tiles and row["compute"]]
    cycles = sum(row["compute"] for row in few)
    if cycles / total > 0.1:
        worst = max(few, key=lambda row: row["compute"])
        yield Advice(
            "Spread the work over more tiles",
            f"{count(len(few))} compute sets use fewer than a quarter of the tiles and compute for "
            f"{percent(cycles / total)} of the step; the longest is {worst['name']} on {count(worst['tiles'])} tiles, "
            f"{count(worst['cycles'])} cycles. Larger batches or layers use more tiles.",
            "trace",
            cycles / total * (1 - FEW_TILES),
        )


def _costliest(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    top = account.top(1)
    if not top:
        return
    name, number, cycles = top[0]
    total = max(1, data["cycles"]["total"])
    times = f", {number} times," if number > 1 else ""
    yield Advice(
        "Begin with the costliest operation",
        f"{name}{times} takes {count(cycles)} cycles, {percent(cycles / total)} of the step: more than any other.",
        "operations",
        min(0.2, cycles / total / 2),
    )


def _exchange(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    cycles, total = data["cycles"], max(1, data["cycles"]["total"])
    share = data["exchange"]["on_chip_cycles"] / total
    if share > 0.4:
        worst = max(data["operations"], key=lambda row: row["exchange"])
        yield Advice(
            "Move less between tiles",
            f"Exchange takes {percent(share)} of the step, where about 30 % are usual; most of it in {worst['name']}, "
            f"{count(worst['exchange'])} cycles. Fewer transposes and layouts that neighbours share help.",
            "exchange",
            share - 0.3,
        )
    between = data["exchange"]["between_ipus_cycles"] + data["exchange"]["between_ipus_sync_cycles"]
    if between / total > 0.1:
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
            f"Syncs take {percent(share)} of the step, where about 10 % are usual: {count(len(account.costs))} compute "
            "sets are short. Larger batches, or several small operations in one layer, help.",
            "trace",
            share - 0.1,
        )


def _pipeline(data: dict[str, Any], account: Account) -> Iterator[Advice]:
    pipeline = data["pipeline"]
    if pipeline and pipeline["bubble_share"] > 0.1:
        yield Advice(
            "Fill the pipeline",
            f"IPUs wait for {percent(pipeline['bubble_share'])} of an update. More micro-batches for each update, or "
            "stages of more equal length, leave fewer bubbles.",
            "pipeline",
            pipeline["bubble_share"],
        )


FINDERS: tuple[Callable[[dict[str, Any], Account], Iterator[Advice]], ...] = (
    *(_memory, _room, _host, _precision),
    *(_stragglers, _costliest, _exchange, _pipeline),
)
