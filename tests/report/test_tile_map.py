"""Arrays, vertices and exchanges of single tiles in a report add up to the memory table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from engine.profile.exchange import Layouts
from engine.profile.options import Assumptions
from engine.profile.program_estimate import estimate
from engine.report import data as report_module
from engine.report import make_report, report_on
from engine.report.charts import CHARTS
from engine.report.tile_map import bytes_on
from engine.target import target
from tests.profile.programs import dense_step
from tests.report.samples import program, report, too_large
from tests.report.test_advice import pipelined

FIXED = ("code", "vertex state")


def tiles_of(place: list[int]) -> list[int]:
    """The numbers of the tiles of an array or a compute set."""
    origin, ring, start, tiles = place[:4]
    return [origin + (start + number) % ring for number in range(tiles)]


def overlapped() -> dict[str, Any]:
    assumed = Assumptions(io_tiles=64, overlapped_io=True)
    return make_report(dense_step(), target("ipu2"), assumptions=assumed, chips=()).data


def ipus() -> list[dict[str, Any]]:
    data = report_on(pipelined(), name="pipeline").data
    return [data, *(data | each for each in data["by_ipu"])]


@pytest.mark.parametrize(
    "made",
    [lambda: [report().data], lambda: [too_large().data], lambda: [overlapped()], ipus],
    ids=["fits", "does not fit", "I/O tiles", "pipeline"],
)
def test_arrays_of_each_tile_are_those_of_the_memory_table(made: Any) -> None:
    for data in made():
        categories = data["memory"]["categories"]
        for each in data["tiles"]:
            number, found = each["tile"], Counter[str]()
            for tensor, size in bytes_on(data, number):
                found[tensor["category"]] += size
            for name in FIXED:
                found[name] += categories.get(name, [0] * len(data["tiles"]))[number]
            assert found == Counter({name: sizes[number] for name, sizes in categories.items() if sizes[number]})
            assert sum(found.values()) == each["peak_bytes"]


def test_an_array_has_its_bytes_on_its_tiles() -> None:
    for tensor in report().data["liveness"]["tensors"]:
        *_, tiles, per_tile, last_tile = tensor["place"]
        assert per_tile * (tiles - 1) + last_tile == tensor["bytes"]
        assert len(set(tiles_of(tensor["place"]))) == tiles <= 1472


def test_work_is_on_as_many_tiles_as_the_operation_says() -> None:
    data = report().data
    for row, work in zip(data["operations"], data["work"], strict=True):
        assert work["place"][3] == row["tiles"] and max(tiles_of(work["place"])) < 1472


def test_work_reads_and_writes_the_arrays_of_its_compute_set() -> None:
    data, tensors = report().data, report().data["liveness"]["tensors"]
    parts = Layouts(program().compute_sets).parts
    assert parts, "the chip's plan splits a sum that the program splits"
    for at, compute_set in enumerate(program().compute_sets):
        work = data["work"][at]
        for spans, numbers in ((compute_set.reads, work["reads"]), (compute_set.writes, work["writes"])):
            arrays = {span.buffer for span in spans if span.buffer.kind != "queue"}
            sizes = sorted(each.shape.bytes // parts.get(each, 1) for each in arrays)
            assert sorted(tensors[number]["bytes"] for number in numbers) == sizes
            assert all(t["always_live"] or t["first"] <= at <= t["last"] for t in (tensors[n] for n in numbers))


def test_what_tiles_receive_is_in_their_exchange_buffers() -> None:
    """Each tile of a product receives its bytes into a buffer that lives only in this compute set."""
    data = report().data
    for at, (row, work) in enumerate(zip(data["operations"], data["work"], strict=True)):
        held = [
            tensor["place"][4]
            for tensor in data["liveness"]["tensors"]
            if tensor["category"] == "exchange buffers" and tensor["first"] == at == tensor["last"]
        ]
        assert work["received_bytes"] <= sum(held)
        assert row["exchange"] >= work["received_bytes"] // 4


def test_an_array_has_the_line_of_the_first_compute_set_that_writes_it() -> None:
    found = estimate(program(), target("ipu2"))
    data = report_on(found, source=lambda op_name: f"model.py:{op_name}").data
    writers: dict[int, str] = {}
    for cost, work in zip(found.costs, data["work"], strict=True):
        for number in work["writes"]:
            writers.setdefault(number, f"model.py:{cost.op_name}")
    tensors = data["liveness"]["tensors"]
    assert any(tensor["source"] for tensor in tensors)
    for number, tensor in enumerate(tensors):
        assert tensor["source"] == ("" if tensor["always_live"] else writers.get(number, ""))


def test_arrays_that_are_not_named_are_in_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report().data
    monkeypatch.setattr(report_module, "TENSORS", 3)
    data = make_report(program(), target("ipu2"), chips=()).data
    tensors = data["liveness"]["tensors"]
    assert len(tensors) == 3 < data["liveness"]["tensors_in_all"] == len(whole["liveness"]["tensors"])
    for few, work in zip(data["work"], whole["work"], strict=True):
        named = [whole["liveness"]["tensors"][number] for number in (*work["reads"], *work["writes"])]
        assert [tensors[number] for number in (*few["reads"], *few["writes"])] == [t for t in named if t in tensors]
    on_tile = sum(size for _, size in bytes_on(data, 5)) + sum(data["memory"]["categories"][name][5] for name in FIXED)
    assert on_tile < data["tiles"][5]["peak_bytes"]


def test_the_peak_of_a_tile_is_where_it_holds_most() -> None:
    data = report().data
    changes = np.zeros((len(data["operations"]) + 1, 1472), np.int64)
    for tensor in data["liveness"]["tensors"]:
        tiles, *_, per_tile, last_tile = tiles_of(tensor["place"]), *tensor["place"]
        sizes = [per_tile] * (len(tiles) - 1) + [last_tile]
        changes[tensor["first"], tiles] += sizes
        changes[tensor["last"] + 1, tiles] -= sizes
    live = np.cumsum(changes, axis=0)[:-1]
    assert live.argmax(axis=0).tolist() == [each["peak_at"] for each in data["tiles"]]


def test_each_tile_of_a_small_chip_has_a_lane() -> None:
    """The lanes of eight tiles: cycles in a phase are those of the compute sets in which the tile has vertices."""
    data = make_report(dense_step(64, 20, 7), target("ipu2", tiles=8), chips=()).data
    drawn = CHARTS["lanes"](data)
    assert drawn is not None
    rows = drawn["data"]["values"]
    works = [set(tiles_of(work["place"])) for work in data["work"]]
    assert any(len(tiles) < 8 for tiles in works)
    for tile in range(8):
        found = Counter[str]()
        for row in rows:
            if row["lane"] == f"tile {tile}":
                found[row["phase"]] += row["end"] - row["begin"]
        expected = Counter({"host": data["cycles"]["host"]})
        for row, tiles in zip(data["operations"], works, strict=True):
            expected["sync"] += row["sync"]
            for phase in ("exchange", "compute"):
                expected[phase if tile in tiles else "idle"] += row[phase]
        assert found == +expected
    assert {row["lane"] for row in rows} == {f"tile {tile}" for tile in range(8)}


def test_a_large_chip_has_lanes_of_the_busiest_and_the_idlest_tile() -> None:
    drawn = CHARTS["lanes"](report().data)
    assert drawn is not None and {row["lane"] for row in drawn["data"]["values"]} == {"busiest tile", "idlest tile"}
