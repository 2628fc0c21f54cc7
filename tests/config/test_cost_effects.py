"""Options of IPUConfig that promise an effect in the chip's cost report: each effect is shown on a small program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from engine.compile import build_program
from engine.errors import ConfigurationError
from engine.ir import GatherDimensionNumbers, Shape
from engine.ir.attributes import WindowDimension
from engine.ir.builder import Builder
from engine.partition.storage import Storage
from engine.profile.program_estimate import Estimate, estimate
from engine.program.program import Program
from ipu._internal.compiler.fit import with_storage
from ipu._internal.compiler.program import build_program as configured_build
from ipu._internal.config.chip import configured_assumptions, configured_target
from ipu._internal.config.effects import EFFECTS
from ipu._internal.config.engine_flags import SUPERVISOR_STACK, WORKER_STACK
from ipu._internal.config.library_flags import LIBRARIES
from ipu.config import DeviceConnectionType, IPUConfig, SchedulingAlgorithm
from tests.config.test_tree import write
from tests.engine.queue_programs import sums as queue_sums
from tests.profile.programs import elementwise, product
from tests.profile.test_convolution import program as convolution_program
from tests.profile.training_steps import deep_step


@cache
def look_up(count: int = 1) -> Program:
    """4,096 rows of a table of 20,000, `count` times."""
    b = Builder("embedding")
    table, ids = b.parameter("f32", (20_000, 64)), [b.parameter("s32", (4096, 1)) for _ in range(count)]
    numbers = GatherDimensionNumbers((1,), (0,), (0,), 1)
    attributes = {"gather_dimension_numbers": numbers, "gather_slice_sizes": (1, 64)}
    rows = [b.inferred("gather", (table, each), **attributes) for each in ids]
    return build_program(b.module(b.tuple(*rows)), ["variable", *["feed"] * count], {})


def look_ups() -> Program:
    return look_up(2)


@cache
def products() -> Program:
    """Two products of one feed."""
    b = Builder("products")
    x, w = b.parameter("f32", (256, 128)), [b.parameter("f32", (128, 128)) for _ in range(2)]
    return build_program(b.module(b.tuple(*(b.dot(x, each) for each in w))), ["feed", "variable", "variable"], {})


@cache
def weights() -> Program:
    """A product of a few rows with many weights."""
    return product(2, 8192, 512, role="variable")


@cache
def sums() -> Program:
    """The sums of rows of two feeds."""
    b = Builder("sums")
    made = [b.reduce(b.parameter("f32", (8, 8192)), b.constant(0.0), (1,)) for _ in range(2)]
    return build_program(b.module(b.tuple(*made)), ["feed"] * 2, {})


@cache
def infeeds() -> Program:
    """Sums over the elements of a queue, of two large arrays each."""
    shapes = [Shape("f32", (64, 64))] * 2
    return build_program(queue_sums(shapes, 4), ["variable"] * 4, {})


@cache
def dynamic_slice() -> Program:
    """A look-up of one of 20,000 rows."""
    b = Builder("dynamic_slice")
    table, start, zero = b.parameter("f32", (20_000, 64)), b.parameter("s32", ()), b.constant(0, "s32")
    row = b.instruction("dynamic-slice", Shape("f32", (1, 64)), (table, start, zero), dynamic_slice_sizes=(1, 64))
    return build_program(b.module(b.tuple(row)), ["variable", "feed"], {})


@cache
def momentum() -> Program:
    """A training step with slots."""
    return deep_step()


@cache
def solve() -> Program:
    """A triangular solve of rank 64, and a Cholesky factor."""
    b = Builder("solve")
    a, right = b.parameter("f32", (64, 64)), b.parameter("f32", (64, 64))
    attributes = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    made = b.inferred("triangular-solve", (a, right), **attributes)
    return build_program(b.module(b.tuple(made, b.inferred("cholesky", (a,), lower=True))), ["feed", "feed"], {})


@cache
def half() -> Program:
    """A product of halves."""
    return product(1024, 1024, 1024, "f16")


@cache
def large_feed() -> Program:
    """A tanh of each element of a feed."""
    return elementwise("tanh", 1472 * 600)


@cache
def convolution() -> Program:
    """A convolution of 3 x 3 taps."""
    return convolution_program(4, 28, 64, 64, WindowDimension(3, padding_low=1, padding_high=1), kind="f16")


def two_branches() -> Program:
    """A large product, which waits for a number that comes from another one."""
    b = Builder("branches")
    x, w, v = b.parameter("f32", (512, 64)), b.parameter("f32", (64, 512)), b.parameter("f32", (64, 512))
    waits = b.dot(x, w)
    number = b.reduce(b.dot(x, v), b.constant(0.0), (0, 1))
    product = b.multiply(waits, b.broadcast(number, (512, 512), ()))
    return configured_build(b.module(b.tuple(b.reduce(product, b.constant(0.0), (1,)))), ["feed"] * 3, {})


def live(found: Estimate) -> float:
    return max(found.memory.live_bytes)


def sync(found: Estimate) -> float:
    return found.sync


def peak(found: Estimate) -> float:
    return found.memory.peak_fullest


def seconds(found: Estimate) -> float:
    return found.seconds_per_step


def cycles(found: Estimate) -> float:
    return found.cycles


@dataclass(frozen=True)
class Case:
    """An option's value, the other options to set, and how the measure of a program changes."""

    value: Any
    program: Callable[[], Program]
    measure: Callable[[Estimate], float]
    change: str
    besides: tuple[tuple[str, Any], ...] = ()
    storage: Storage = Storage()
    replicas: int = 1


def remote_bytes(found: Estimate) -> float:
    return sum(found.remote.bytes.values())


OVERLAPPED = (("io_tiles.num_io_tiles", 32), ("io_tiles.place_ops_on_io_tiles", True))

OFFLOADED = Storage(offload_weight_update_variables=True)
DETACHED = (("device_connection.type", DeviceConnectionType.ON_DEMAND),)

SYNCLESS = {"useSynclessCollectives": "true"}
LOOK_AHEAD = (("scheduling.algorithm", SchedulingAlgorithm.LOOK_AHEAD),)

CASES: dict[str, Case] = {
    "optimizations.maximum_cross_replica_sum_buffer_size": Case(10**6, momentum, sync, "<", replicas=16),
    "optimizations.enable_dynamic_slice_replacement": Case(False, dynamic_slice, cycles, ">"),
    "scheduling.algorithm": Case(SchedulingAlgorithm.POST_ORDER, two_branches, live, "!="),
    "scheduling.maximum_scheduler_lookahead_depth": Case(0, two_branches, live, ">", LOOK_AHEAD),
    "scheduling.maximum_scheduler_search_space_size": Case(1, two_branches, live, ">", LOOK_AHEAD),
    "device_connection.enable_remote_buffers": Case(True, momentum, remote_bytes, ">", DETACHED, OFFLOADED),
    "optimizations.minimum_remote_tensor_size": Case(10**6, momentum, remote_bytes, "<", (), OFFLOADED),
    "optimizations.combine_embedding_lookups": Case(True, look_ups, cycles, "<"),
    "optimizations.combine_matmuls": Case(True, products, cycles, "<"),
    "optimizations.maximum_reduce_many_buffer_size": Case(10**6, sums, sync, "<"),
    "optimizations.merge_infeed_io_copies": Case(True, infeeds, sync, "<"),
    "compilation_poplar_options": Case({"target.workerStackSizeInBytes": "4096"}, half, peak, ">"),
    "gcl_poplar_options": Case(SYNCLESS, momentum, sync, "<", replicas=16),
    "matmuls.poplar_options": Case({"partialsType": "half"}, half, cycles, "<"),
    "convolutions.poplar_options": Case({"availableMemoryProportion": "0.01"}, convolution, cycles, ">"),
    "slices.poplar_options": Case({"availableMemoryProportion": 0.01}, look_up, cycles, ">"),
    "experimental.always_rearrange_copies_on_the_host": Case(True, weights, peak, "<"),
    "io_tiles.num_io_tiles": Case(192, large_feed, cycles, ">"),
    "io_tiles.place_ops_on_io_tiles": Case(True, large_feed, seconds, "<", (("io_tiles.num_io_tiles", 32),)),
    "io_tiles.available_memory_proportion": Case(0.1, large_feed, seconds, ">", OVERLAPPED),
    "ipu_model.compile_ipu_code": Case(False, half, peak, "<"),
    "ipu_model.tiles_per_ipu": Case(8, large_feed, cycles, ">"),
    "ipu_model.version": Case("ipu1", large_feed, cycles, ">"),
    "optimizations.triangular_solve_expander_block_size": Case(8, solve, cycles, "<"),
    "optimizations.cholesky_block_size": Case(8, solve, cycles, "<"),
}
"""Cases by the option."""
SMALL, LARGE = {"availableMemoryProportion": "0.01"}, "4096"
FLAGS: dict[tuple[str, str], Case] = {
    ("gcl_poplar_options", "useSynclessCollectives"): Case(SYNCLESS, momentum, sync, "<", replicas=16),
    ("matmuls.poplar_options", "availableMemoryProportion"): Case(SMALL, half, cycles, ">"),
    ("matmuls.poplar_options", "partialsType"): Case({"partialsType": "half"}, half, cycles, "<"),
    ("convolutions.poplar_options", "availableMemoryProportion"): Case(SMALL, convolution, cycles, ">"),
    ("convolutions.poplar_options", "partialsType"): Case({"partialsType": "half"}, convolution, cycles, "<"),
    ("slices.poplar_options", "availableMemoryProportion"): Case(SMALL, look_up, cycles, ">"),
    **{
        ("compilation_poplar_options", flag): Case({flag: LARGE}, half, peak, ">")
        for flag in (*SUPERVISOR_STACK, *WORKER_STACK)
    },
}
"""Cases by the option and its flag."""


def measured(case: Case, options: tuple[tuple[str, Any], ...]) -> float:
    config = IPUConfig()
    for name, value in options:
        write(config, name, value)
    config.configure_ipu_system()
    assumptions = with_storage(configured_assumptions(), case.storage, 1)
    return case.measure(estimate(case.program(), configured_target(), case.replicas, assumptions))


@pytest.mark.parametrize("name", CASES)
def test_effect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    case = CASES[name]
    before, after = measured(case, case.besides), measured(case, (*case.besides, (name, case.value)))
    assert {"<": after < before, ">": after > before, "!=": after != before}[case.change], (before, after)
    assert EFFECTS[name].kind == "cost report"


@pytest.mark.parametrize("flag", FLAGS)
def test_effect_of_a_flag(flag: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    case = FLAGS[flag]
    before, after = measured(case, ()), measured(case, ((flag[0], case.value),))
    assert after < before if case.change == "<" else after > before, (before, after)


def test_every_flag_that_promises_an_effect_is_shown() -> None:
    promised = {(name, flag) for name, library in LIBRARIES.items() for flag in library.acting}
    assert promised == FLAGS.keys() | {("compilation_poplar_options", "debug.allowOutOfMemory")}


def test_a_stack_is_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"target.workerStackSizeInBytes": "large"}')
    with pytest.raises(ConfigurationError, match="target.workerStackSizeInBytes.*Received: 'large'"):
        configured_assumptions()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.workerStackSizeInBytes": 512}')
    assert configured_assumptions().stack_bytes == (None, 512)
