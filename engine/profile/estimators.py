"""Estimates of published experiments by the device model: one function for each kind of experiment."""

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
    return plan_product(Product(1, 1, rows, k, "f32", k, rows * k, "b"), _by_hand(chip))


def matrix_vector(chip: str, rows: int, k: int) -> float:
    """Cycles of an fp32 matrix times a vector, with the matrix resident on the tiles that need it.

    Poplar's planner, the reference, counts neither syncs nor the start-up of exchanges.
    """
    plan = _matrix_vector(chip, rows, k)
    stages = plan.sync // target(chip).sync_cycles
    return float(plan.compute + plan.exchange - stages * target(chip).exchange_start_cycles)


def matrix_vector_compute(chip: str, rows: int, k: int) -> float:
    """Cycles of the vertices of a matrix times a vector."""
    return float(_matrix_vector(chip, rows, k).compute)


def matrix_vector_exchange(chip: str, rows: int, k: int) -> float:
    """Cycles of the exchange of a matrix times a vector, with that of the matrix after the host has written it."""
    unit = target(chip)
    share = -(-rows * k * FLOAT_BYTES // unit.tiles)
    return float(exchange_cycles(share, unit) + _matrix_vector(chip, rows, k).exchange)


def matrix_vector_sync(chip: str, rows: int, k: int) -> float:
    """Cycles of the syncs of a matrix times a vector."""
    return float(_matrix_vector(chip, rows, k).sync)


def dense_product(element_type: str, size: int, columns: int) -> float:
    """Flop per second of a resident matrix [size, size] times `columns` columns on a Bow, fp16 with fp16 partials."""
    unit, options = target("bow"), ProductOptions("f16")
    product = Product(1, columns, size, size, element_type, columns * size, size * size, "b")
    return 2 * columns * size**2 / plan_product(product, unit, options).cycles * unit.clock_hz


def best_square_product(chip: str, element_type: str, sizes: list[int]) -> float:
    """Flop per second of the fastest product [size, size] x [size, size] with fp32 partials."""
    products = {size: Product(1, size, size, size, element_type, size**2, size**2, "b") for size in sizes}
    unit = _by_hand(chip)
    return max(2 * size**3 / plan_product(each, unit).cycles * unit.clock_hz for size, each in products.items())


def host_transfer(chip: str, fed: int, returned: int) -> float:
    """Cycles to transfer `fed` bytes from the host and `returned` bytes to it."""
    unit = target(chip)
    return float(host_cycles(fed, returned, unit))


def model_host_transfer(chip: str, fed: int, returned: int) -> float:
    """Cycles of a host transfer on the IPU Model, which has a bandwidth of its own."""
    unit = target(chip)
    return float(ceil((fed + returned) * unit.clock_hz / unit.model_host_bytes_per_second))


def triad(chip: str, elements_per_worker: int) -> float:
    """Bytes per second of loads and stores in a + s * b: two loads and one store for each element."""
    return 3 * FLOAT_BYTES * _triads_per_second(chip, elements_per_worker)


def triad_flops(chip: str, elements_per_worker: int) -> float:
    """Multiplies and adds per second of the triad."""
    return 2 * _triads_per_second(chip, elements_per_worker)


def _triads_per_second(chip: str, elements_per_worker: int) -> float:
    unit = target(chip)
    elements = elements_per_worker * unit.workers_per_tile
    cycles = vertex_cycles((("scaled-add", "f32"),), elements, unit) + unit.sync_cycles
    return elements / cycles * unit.clock_hz * unit.tiles


def stencil(
    chip: str,
    cells: int,
    adds: int,
    multiplies: int,
    halo_cells: int,
    divides: int = 0,
    ipus: int = 1,
    padding_cells: int = 0,
) -> float:
    """Seconds of one step of a stencil whose tiles receive `halo_cells` from their neighbours.

    Each of several IPUs also receives `padding_cells` from the next one, and all synchronise.
    """
    unit = target(chip)
    operations = (("add", "f32"),) * adds + (("multiply", "f32"),) * multiplies + (("divide", "f32"),) * divides
    per_tile = spread(-(-cells // ipus), FLOAT_BYTES, unit).per_tile
    cycles = vertex_cycles(operations, per_tile, unit) + exchange_cycles(halo_cells * FLOAT_BYTES, unit)
    seconds = (cycles + unit.external_sync_cycles(ipus)) / unit.clock_hz
    return seconds + (_between_ipus(chip, padding_cells * FLOAT_BYTES) if ipus > 1 else 0.0)


def speedup(chip: str, ipus: int, seconds_on_one: float, padding_bytes: int) -> float:
    """Speedup of several IPUs over one, where each computes an equal part of a step and exchanges its halo."""
    unit = target(chip)
    each = seconds_on_one / ipus + unit.external_sync_cycles(ipus) / unit.clock_hz + _between_ipus(chip, padding_bytes)
    return seconds_on_one / each


def exchange(chip: str, received: int) -> float:
    """Cycles until each tile has received `received` bytes."""
    return float(exchange_cycles(received, target(chip)))


def exchange_between_ipus(chip: str, received: int) -> float:
    """Cycles until each IPU has received `received` bytes from the next one."""
    return _between_ipus(chip, received) * target(chip).clock_hz


def _between_ipus(chip: str, received: int) -> float:
    unit = target(chip)
    return unit.global_exchange_start_seconds + received / unit.neighbour_link_bytes_per_second


def sync(chip: str, ipus: int) -> float:
    """Cycles of a sync of one chip or of several."""
    return float(target(chip).external_sync_cycles(ipus))


def vector_gain(chip: str, element_type: str) -> float:
    """Speedup by vectors of a type over single fp32 elements: the number of elements of a vector."""
    return target(chip).vector_bytes / (4 if element_type == "f32" else 2)


def solve(chip: str, tiles: int, size: int, right_sides: int, block: int) -> float:
    """Cycles of a blocked triangular solve."""
    return float(triangular_solve(1, size, right_sides, target(chip, tiles), ProductOptions(), block).cycles)


def peak_flops(chip: str, element_type: str, partials_type: str = "f32") -> float:
    """Peak flop per second of all matrix engines."""
    return target(chip).peak_flops(element_type, partials_type)


def memory_bandwidth(chip: str) -> float:
    """Bytes per second of all loads and stores."""
    return target(chip).memory_bytes_per_second


def exchange_bandwidth(chip: str) -> float:
    """Bytes per second that all tiles receive."""
    unit = target(chip)
    return unit.tiles * unit.exchange_bytes_per_cycle * unit.clock_hz


ESTIMATORS: dict[str, Callable[..., float]] = {
    function.__name__: function
    for function in (
        *(matrix_product, matrix_vector, matrix_vector_compute, matrix_vector_exchange, matrix_vector_sync),
        *(
            dense_product,
            best_square_product,
            host_transfer,
            model_host_transfer,
            triad,
            triad_flops,
            stencil,
            speedup,
            exchange,
        ),
        *(exchange_between_ipus, sync, vector_gain, solve, peak_flops, memory_bandwidth, exchange_bandwidth),
    )
}
