"""Estimates of published experiments by the device model: one of ESTIMATORS for each kind of experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from engine.profile.exchange import exchange_cycles
from engine.profile.factorization import triangular_solve
from engine.profile.mapping import spread
from engine.profile.matmul import Product, plan_product
from engine.profile.matrix_engine import amp_cycles
from engine.profile.options import ProductOptions
from engine.profile.plan import Plan
from engine.profile.streams import host_cycles
from engine.profile.vertices import vertex_cycles
from engine.target import Target, target

FLOAT_BYTES = 4


def matrix_product(chip: str, rows: int) -> float:
    """Cycles of [rows, 16] x [16, 16] in fp16 with fp16 partials and 128-bit weight loads, as in the notebook."""
    return float(amp_cycles(rows, 16, 16, "f16", target(chip), partials_type="f16", weight_load_bytes=16, zeroes=False))


def _by_hand(chip: str) -> Target:
    """The chip of a program written for Poplar by hand, whose supersteps cost no more than their sync."""
    return replace(target(chip), superstep_cycles=0)


def _matrix_vector(chip: str, rows: int, k: int) -> Plan:
    """The plan of an fp32 matrix times a vector, with the matrix resident on the tiles that need it."""
    return plan_product(Product(1, 1, rows, k, "f32", k, rows * k, "b"), _by_hand(chip))


def _matrix_vector_without_syncs(chip: str, rows: int, k: int) -> float:
    """Poplar's planner, the reference, counts neither syncs nor the start-up of exchanges."""
    plan = _matrix_vector(chip, rows, k)
    stages = plan.sync // target(chip).sync_cycles
    return plan.compute + plan.exchange - stages * target(chip).exchange_start_cycles


def _matrix_vector_exchange(chip: str, rows: int, k: int) -> float:
    """The exchange of the product, and that of the matrix after the host has written it."""
    unit = target(chip)
    share = -(-rows * k * FLOAT_BYTES // unit.tiles)
    return exchange_cycles(share, unit) + _matrix_vector(chip, rows, k).exchange


def _dense_product(element_type: str, size: int, columns: int) -> float:
    """A resident matrix [size, size] times `columns` columns on a Bow, fp16 with fp16 partials."""
    unit, options = target("bow"), ProductOptions("f16")
    product = Product(1, columns, size, size, element_type, columns * size, size * size, "b")
    return 2 * columns * size**2 / plan_product(product, unit, options).cycles * unit.clock_hz


def _best_square_product(chip: str, element_type: str, sizes: list[int]) -> float:
    """The fastest product [size, size] x [size, size] with fp32 partials."""
    products = {size: Product(1, size, size, size, element_type, size**2, size**2, "b") for size in sizes}
    unit = _by_hand(chip)
    return max(2 * size**3 / plan_product(each, unit).cycles * unit.clock_hz for size, each in products.items())


def _model_host_transfer(chip: str, fed: int, returned: int) -> float:
    """A host transfer on the IPU Model, which has a bandwidth of its own."""
    unit = target(chip)
    return ceil((fed + returned) * unit.clock_hz / unit.model_host_bytes_per_second)


def _triads_per_second(chip: str, elements_per_worker: int) -> float:
    """Elements per second of a + s * b."""
    unit = target(chip)
    elements = elements_per_worker * unit.workers_per_tile
    cycles = vertex_cycles((("scaled-add", "f32"),), elements, unit) + unit.sync_cycles
    return elements / cycles * unit.clock_hz * unit.tiles


def _stencil(
    chip: str,
    cells: int,
    adds: int,
    multiplies: int,
    halo_cells: int,
    divides: int = 0,
    ipus: int = 1,
    padding_cells: int = 0,
) -> float:
    """One step of a stencil whose tiles receive `halo_cells` from their neighbours.

    Each of several IPUs also receives `padding_cells` from the next one, and all synchronise.
    """
    unit = target(chip)
    operations = (("add", "f32"),) * adds + (("multiply", "f32"),) * multiplies + (("divide", "f32"),) * divides
    per_tile = spread(-(-cells // ipus), FLOAT_BYTES, unit).per_tile
    cycles = vertex_cycles(operations, per_tile, unit) + exchange_cycles(halo_cells * FLOAT_BYTES, unit)
    seconds = (cycles + unit.external_sync_cycles(ipus)) / unit.clock_hz
    return seconds + (_between_ipus(chip, padding_cells * FLOAT_BYTES) if ipus > 1 else 0.0)


def _speedup(chip: str, ipus: int, seconds_on_one: float, padding_bytes: int) -> float:
    """Several IPUs over one, where each computes an equal part of a step and exchanges its halo."""
    unit = target(chip)
    each = seconds_on_one / ipus + unit.external_sync_cycles(ipus) / unit.clock_hz + _between_ipus(chip, padding_bytes)
    return seconds_on_one / each


def _between_ipus(chip: str, received: int) -> float:
    """Seconds until each IPU has received `received` bytes from the next one."""
    unit = target(chip)
    return unit.global_exchange_start_seconds + received / unit.neighbour_link_bytes_per_second


def _exchange_bandwidth(chip: str) -> float:
    """Bytes that all tiles receive."""
    unit = target(chip)
    return unit.tiles * unit.exchange_bytes_per_cycle * unit.clock_hz


CYCLES: dict[str, Callable[..., float]] = {
    "matrix_product": matrix_product,
    "matrix_vector": _matrix_vector_without_syncs,
    "matrix_vector_compute": lambda chip, rows, k: _matrix_vector(chip, rows, k).compute,
    "matrix_vector_exchange": _matrix_vector_exchange,
    "matrix_vector_sync": lambda chip, rows, k: _matrix_vector(chip, rows, k).sync,
    "host_transfer": lambda chip, fed, returned: host_cycles(fed, returned, target(chip)),
    "model_host_transfer": _model_host_transfer,
    "exchange": lambda chip, received: exchange_cycles(received, target(chip)),
    "exchange_between_ipus": lambda chip, received: _between_ipus(chip, received) * target(chip).clock_hz,
    "sync": lambda chip, ipus: target(chip).external_sync_cycles(ipus),
    "solve": lambda chip, tiles, size, right_sides, block: (
        triangular_solve(1, size, right_sides, target(chip, tiles), ProductOptions(), block).cycles
    ),
}
SECONDS: dict[str, Callable[..., float]] = {"stencil": _stencil}
RATES: dict[str, Callable[..., float]] = {
    "dense_product": _dense_product,
    "best_square_product": _best_square_product,
    # Two loads and one store of each element; a multiply and an add.
    "triad": lambda chip, elements_per_worker: 3 * FLOAT_BYTES * _triads_per_second(chip, elements_per_worker),
    "triad_flops": lambda chip, elements_per_worker: 2 * _triads_per_second(chip, elements_per_worker),
    "peak_flops": lambda chip, element_type, partials_type="f32": target(chip).peak_flops(element_type, partials_type),
    "memory_bandwidth": lambda chip: target(chip).memory_bytes_per_second,
    "exchange_bandwidth": _exchange_bandwidth,
}
"""Flop or bytes per second."""
GAINS: dict[str, Callable[..., float]] = {
    "speedup": _speedup,
    # The number of elements of a vector, in place of single fp32 elements.
    "vector_gain": lambda chip, element_type: target(chip).vector_bytes / (4 if element_type == "f32" else 2),
}
ESTIMATORS = CYCLES | SECONDS | RATES | GAINS
