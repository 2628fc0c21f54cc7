"""The model against published measurements: what is known of its error."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.profile.exchange import exchange_cycles
from engine.profile.mapping import spread
from engine.profile.matmul import Product, amp_cycles, plan_product
from engine.profile.vertices import vertex_cycles
from engine.target import DATA, target

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Measurement:
    """A published figure and the model's; `calibrated` if it was used in making the model."""

    name: str
    group: str
    kind: str
    published: float
    unit: str
    tolerance: float
    calibrated: bool
    source: str
    estimate: float

    @property
    def error(self) -> float:
        """Relative to the published figure; positive where the model says more."""
        return (self.estimate - self.published) / self.published


@cache
def measurements() -> tuple[Measurement, ...]:
    """All published figures that the model can express, with its estimates."""
    found = []
    for row in _rows()["measurement"]:
        figures = {name: value for name, value in row.items() if name not in ("estimator", "arguments")}
        found.append(Measurement(estimate=ESTIMATORS[row["estimator"]](**row["arguments"]), **figures))
    return tuple(found)


def whole_models() -> list[dict[str, Any]]:
    """Published throughput of whole models, and how near the tests hold the model to it."""
    return _rows()["whole_model"]


@cache
def _rows() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((DATA / "measurements.toml").read_text())


def worst_errors() -> dict[str, float]:
    """For each group of measurements its largest error, with its sign."""
    worst: dict[str, float] = {}
    for each in measurements():
        if abs(each.error) >= abs(worst.get(each.group, 0.0)):
            worst[each.group] = each.error
    return worst


def table() -> str:
    """The measurements one per line: name, published, estimate, error."""
    lines = [f"{'measurement':<56}{'published':>11}{'estimate':>11}{'error':>9}"]
    for each in measurements():
        name = each.name + (" *" if each.calibrated else "")
        lines.append(f"{name:<56}{each.published:>11.4g}{each.estimate:>11.4g}{each.error:>+9.1%}")
    return "\n".join([*lines, "* used in making the model"])


def matrix_product(chip: str, rows: int) -> float:
    """[rows, 16] x [16, 16] in fp16 with fp16 partials and 128-bit weight loads, as the notebook does."""
    return float(amp_cycles(rows, 16, 16, "f16", target(chip), "f16", weight_load_bytes=16))


def matrix_vector(chip: str, rows: int, k: int) -> float:
    """Cycles of an fp32 matrix times a vector, the matrix lying where it is needed."""
    cost = plan_product(Product(1, 1, rows, k, "f32", k, rows * k, "b"), target(chip))
    return float(cost.compute + cost.exchange + cost.sync)


def triad(chip: str, elements_per_worker: int) -> float:
    """Bytes per second that a + s * b moves, two loads and one store for each element."""
    unit = target(chip)
    elements = elements_per_worker * unit.workers_per_tile
    cycles = vertex_cycles((("scaled-add", "f32"),), elements, unit) + unit.sync_cycles
    return 3 * FLOAT_BYTES * elements / cycles * unit.clock_hz * unit.tiles


def stencil(chip: str, cells: int, adds: int, multiplies: int, halo_cells: int) -> float:
    """Seconds of one step of a stencil whose tiles receive `halo_cells` from their neighbours."""
    unit = target(chip)
    operations = (("add", "f32"),) * adds + (("multiply", "f32"),) * multiplies
    per_tile = spread(cells, FLOAT_BYTES, unit).per_tile
    cycles = vertex_cycles(operations, per_tile, unit) + unit.sync_cycles
    return (cycles + exchange_cycles(halo_cells * FLOAT_BYTES, unit)) / unit.clock_hz


def exchange(chip: str, received: int) -> float:
    """Cycles until each tile has received so many bytes."""
    return float(exchange_cycles(received, target(chip)))


def sync(chip: str, ipus: int) -> float:
    """Cycles of a sync of one chip or of several."""
    return float(target(chip).external_sync_cycles(ipus))


def peak_flops(chip: str, element_type: str) -> float:
    """Flop per second of all matrix engines, with fp32 partials."""
    return target(chip).peak_flops(element_type)


def memory_bandwidth(chip: str) -> float:
    """Bytes per second of all loads and stores."""
    return target(chip).memory_bytes_per_second


ESTIMATORS: dict[str, Callable[..., float]] = {
    function.__name__: function
    for function in (
        matrix_product,
        matrix_vector,
        triad,
        stencil,
        exchange,
        sync,
        peak_flops,
        memory_bandwidth,
    )
}
