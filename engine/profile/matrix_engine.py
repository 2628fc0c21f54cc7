"""Cycles of one tile's multiply-adds with poplin's vertices.

All functions take numbers or int64 arrays. A block of a convolution has `groups` groups, each with `rows` output
positions, `columns` output features, `k` input features and `taps` taps of the kernel; a matrix product has one tap.
"""

from __future__ import annotations

import numpy as np

from engine.profile.vertices import loop_of, tables
from engine.target import INPUTS_PER_PASS, LOOP_CYCLES, Target

Count = np.ndarray | int


def amp_cycles(
    rows: Count,
    columns: Count,
    k: Count,
    element_type: str,
    target: Target,
    *,
    partials_type: str = "f32",
    weight_load_bytes: int | None = None,
    groups: Count = 1,
    taps: Count = 1,
    run: Count | None = None,
    zeroes: bool = True,
) -> np.ndarray:
    """Cycles of the matrix engine (int64): ConvPartial1x1 for one tap, ConvPartialnx1 for more.

    `run` is the number of consecutive positions that a tap reads in sequence: the width of the field. `zeroes` is False
    for a vertex that adds to partial sums.
    """
    table, loop, workers = tables()["matmul"], LOOP_CYCLES[element_type], target.workers_per_tile
    units, inputs = target.amp_units(element_type, partials_type), INPUTS_PER_PASS[element_type]
    load = units * inputs * item_bytes(element_type) // (weight_load_bytes or table["weight_load_bytes_per_cycle"])
    input_groups, output_groups = -(-np.asarray(k) // inputs), -(-np.asarray(columns) // units)
    share, pairs, several = -(-np.asarray(rows) // workers), input_groups * output_groups, np.asarray(taps) > 1
    # One tap: workers each have `share` rows in each of `pairs` passes.
    worker = pairs * (table[f"worker_{element_type}"] + np.maximum(share - table["worker_start"], 0) * loop)
    worker = worker - pairs * np.where(share == 1, table[f"one_row_{element_type}"], 0)
    # The state of a worker is kept from pass to pass of a group of inputs.
    worker = worker - (pairs - input_groups) * table[f"kept_{element_type}"]
    if zeroes:
        worker = worker + output_groups * (table["zero"] + share * table[f"zero_{element_type}"])
    each_pass = load + table[f"each_pass_{element_type}"] + table["output_group"]
    of_one = workers * worker + pairs * each_pass + input_groups * table["input_group"]
    # Several taps: each worker has its own runs of consecutive positions for each tap. A share that is not a number of
    # whole lines begins and ends inside of a line.
    width = np.maximum(share if run is None else run, 1)
    runs = np.minimum(-(-share // width) + (share % width != 0), share)
    worker = table["worker_taps"] + runs * table["run"] + np.maximum(share - table["worker_start"] * runs, 0) * loop
    each_tap = workers * worker + load + table["each_tap"]
    of_several = pairs * (np.asarray(taps) * each_tap + table["group_taps"])
    entry = table["entry"] + table["launch"] + np.where(several, table["entry_taps"], 0)
    return np.asarray(groups) * (table["group"] + np.where(several, of_several, of_one)) + entry


def vector_cycles(
    rows: Count, columns: Count, k: Count, element_type: str, target: Target, groups: Count = 1
) -> np.ndarray:
    """Cycles (int64) of inner products, with one fused multiply-add of a vector per cycle."""
    lanes = target.vector_bytes // item_bytes(element_type)
    return _prologue(target) + groups * np.asarray(rows) * np.asarray(columns) * -(-np.asarray(k) // lanes)


def outer_product_cycles(
    rows: Count, columns: Count, element_type: str, target: Target, groups: Count = 1
) -> np.ndarray:
    """Cycles (int64) of sums of one term: a vector times a scalar for each row, without partial sums."""
    cycles, elements = loop_of("multiply", element_type)
    return _prologue(target) + groups * np.asarray(rows) * -(-np.asarray(columns) // elements) * cycles


def depthwise_cycles(
    rows: Count,
    products: Count,
    rest_taps: Count,
    last_taps: Count,
    groups: Count,
    *,
    element_type: str,
    target: Target,
    partials_type: str = "f32",
) -> np.ndarray:
    """Cycles (int64) with groups in the lanes: VMAC, or SLIC for fp16 and several taps along the last dimension.

    `products` is the input features times the output features of a group. VMAC multiplies and adds a vector of groups
    per cycle; SLIC processes a window of four taps of four groups.
    """
    table = tables()["depthwise"]
    lanes = target.vector_bytes // item_bytes(element_type)
    work = np.asarray(rows) * products * rest_taps
    vectors = work * last_taps * -(-np.asarray(groups) // lanes)
    if element_type == "f16":
        windows = work * -(-np.asarray(last_taps) // table["slic_taps"]) * -(-np.asarray(groups) // lanes)
        slic = windows * table["slic_f16" if partials_type == "f16" else "slic_f32"]
        vectors = np.where(np.asarray(last_taps) > 1, np.minimum(vectors, slic), vectors)
    return _prologue(target) + np.asarray(vectors)


def reduce_cycles(outputs: np.ndarray, splits: np.ndarray, partials_type: str, target: Target) -> np.ndarray:
    """Cycles (int64) in which a tile adds its outputs over `splits` tiles, one vector of partials per cycle."""
    lanes = target.vector_bytes // item_bytes(partials_type)
    return _prologue(target) + -(-(-(-outputs // splits) * splits) // lanes)


def item_bytes(element_type: str) -> int:
    """Bytes of an element of an operand or of a partial sum, "f32" or "f16"."""
    return 4 if element_type == "f32" else 2


def _prologue(target: Target) -> int:
    overhead = tables()["overhead"]
    return int(overhead["supervisor"] + target.workers_per_tile * overhead["worker_f32"])
