"""The report as a trace for Perfetto and Chrome's viewer: lanes of supersteps, host transfers, live bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.report.charts.trace import segments
from engine.report.operations import supersteps

CHIP, HOST, PIPELINE = 1, 2, 3
BUSIEST, IDLEST = 1, 2


def trace(data: dict[str, Any]) -> dict[str, Any]:
    """The trace in Chrome's trace-event format, with the chip's cycles as times in microseconds."""
    events = [*_names(data), *_supersteps(data), *_live(data), *_host(data), *_pipeline(data)]
    about = {"program": data["program"], "target": data["target"]["name"], "cycles": data["cycles"]["total"]}
    return {"displayTimeUnit": "ns", "otherData": about, "traceEvents": events}


def _names(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    title = data["target"]["title"]
    processes = {CHIP: f"{title}, one step", HOST: "host transfers"}
    if data["pipeline"]:
        processes[PIPELINE] = "pipeline"
    for process, name in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    for lane, name in ((BUSIEST, "busiest tile"), (IDLEST, "idlest tile")):
        yield {"ph": "M", "name": "thread_name", "pid": CHIP, "tid": lane, "args": {"name": name}}


def _supersteps(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    operations, tiles, scale = supersteps(data), data["target"]["tiles"], 1e6 / data["target"]["clock_hz"]
    for begin, end, phase, number in segments(data):
        row = operations[number]
        details = {"operation": row["name"], "compute set": number, "cycles": end - begin, "runs": row["runs"]}
        details |= {"tiles": row["tiles"], "dtype": row["dtype"], "flop": row["flop"]}
        details |= {"source": row["source"]} if row.get("source") else {}
        event = {"ph": "X", "cat": phase, "pid": CHIP, "ts": begin * scale, "dur": (end - begin) * scale}
        name = row["name"] if phase == "compute" else phase
        yield {**event, "name": name, "tid": BUSIEST, "args": details}
        if phase != "compute" or row["tiles"] >= tiles:
            yield {**event, "name": name, "tid": IDLEST, "args": {"operation": row["name"]}}


def _live(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Events of a counter of the bytes on the chip."""
    always, at, scale = data["liveness"]["always_live_bytes"], 0, 1e6 / data["target"]["clock_hz"]
    for row in supersteps(data):
        values = {"always live": always, "not always live": row["live_bytes"]}
        yield {"ph": "C", "name": "live bytes", "pid": CHIP, "ts": at * scale, "args": values}
        at += row["cycles"]


def _host(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    host = data["host"]
    incoming = ("in", host["bytes_in"], host["in_bytes_per_second"])
    outgoing = ("out", host["bytes_out"], host["out_bytes_per_second"])
    for lane, (name, size, rate) in enumerate((incoming, outgoing), 1):
        if size:
            event = {"ph": "X", "cat": "host", "name": f"{size:,} bytes {name}", "pid": HOST, "tid": lane}
            yield {**event, "ts": 0.0, "dur": 1e6 * size / rate, "args": {"bytes": size}}


def _pipeline(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pipeline, scale = data["pipeline"], 1e6 / data["target"]["clock_hz"]
    for row in pipeline["rows"] if pipeline else ():
        of = "" if row["micro_batch"] is None else f" {row['micro_batch']}"
        event = {"ph": "X", "cat": row["kind"], "name": f"{row['kind']}{of}", "pid": PIPELINE, "tid": row["ipu"]}
        details = {"stage": row["stage"], "micro_batch": row["micro_batch"], "cycles": row["cycles"]}
        yield {**event, "ts": row["begin"] * scale, "dur": row["cycles"] * scale, "args": details}
