"""Assumptions of a cost report: options as Poplar's libraries have them, I/O tiles, and what is refused."""

from __future__ import annotations

import pytest

from engine.errors import ConfigurationError
from engine.profile.options import Assumptions, ProductOptions, with_flags
from engine.profile.program_estimate import estimate
from engine.target import target
from tests.profile.programs import dense_step, elementwise, product

MK2 = target("ipu2")


def test_flags_are_read_as_poplar_writes_them() -> None:
    found = Assumptions.from_options(
        {"availableMemoryProportion": "0.1", "partialsType": "half"},
        {"availableMemoryProportion": 0.3},
        {},
        io_tiles=32,
    )
    assert found.product_options("a/dense/MatMul") == ProductOptions("f16", 0.1)
    assert found.product_options("a/conv/Conv2D", convolution=True) == ProductOptions("f32", 0.3)
    assert (found.slice_proportion(), found.io_tiles) == (0.6, 32)


def test_a_layer_may_have_options_of_its_own() -> None:
    own = ProductOptions("f16", 0.05)
    found = Assumptions(layers=(("dense_1", own), ("encoder/", ProductOptions("f32", 0.2))))
    assert found.product_options("gradient_tape/model/dense_1/MatMul/MatMul_1") == own
    assert found.product_options("model/encoder/dense/MatMul").memory_proportion == 0.2
    assert found.product_options("model/dense/MatMul") == ProductOptions()
    program = product(1024, 1024, 1024, "f16")
    program.compute_sets[0].op_name = "model/dense_1/MatMul"
    assert estimate(program, MK2, assumptions=found).cycles != estimate(program, MK2).cycles


def test_stages_options_stand_over_the_whole() -> None:
    whole = ProductOptions("f16", 0.4)
    assert with_flags({}, whole) == whole
    assert with_flags({"availableMemoryProportion": "0.2"}, whole) == ProductOptions("f16", 0.2)
    assert with_flags({"partialsType": "float"}, whole) == ProductOptions("f32", 0.4)


@pytest.mark.parametrize("proportion", [0.6, 0.05, 0.01])
def test_the_proportion_bounds_the_plan_of_a_program(proportion: float) -> None:
    program = product(2048, 2048, 2048, "f16")
    free = estimate(program, MK2, assumptions=Assumptions(available_memory_proportion=0.9))
    bound = estimate(program, MK2, assumptions=Assumptions(available_memory_proportion=proportion))
    assert bound.cycles >= free.cycles
    assert bound.memory.peak_fullest <= free.memory.peak_fullest


def test_io_tiles_leave_fewer_to_compute() -> None:
    program = elementwise("tanh", 1472 * 600)
    without, some = (estimate(program, MK2, assumptions=Assumptions(io_tiles=n)) for n in (0, 192))
    assert some.compute > without.compute * 1.1
    assert max(cost.tiles for cost in some.costs) == 1472 - 192


def test_io_that_overlaps_takes_the_longer_of_both() -> None:
    program = dense_step()
    apart, beside = (
        estimate(program, MK2, assumptions=Assumptions(io_tiles=32, overlapped_io=o)) for o in (False, True)
    )
    assert apart.seconds_per_step == pytest.approx((apart.cycles + apart.host) / MK2.clock_hz)
    assert beside.seconds_per_step == pytest.approx(max(beside.cycles, beside.host) / MK2.clock_hz)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"available_memory_proportion": 0.0}, "Received: 0.0"),
        ({"convolution_memory_proportion": -1.0}, "Received: -1.0"),
        ({"available_memory_proportion": float("nan")}, "Received: nan"),
        ({"partials_type": "half"}, "Received: 'half'"),
        ({"io_tiles": 194}, "Use 192."),
        ({"io_tiles": 31}, "Use 32."),
    ],
)
def test_what_cannot_be(arguments: dict, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Assumptions(**arguments)
    assert said in str(raised.value)


@pytest.mark.parametrize("flags", [{"availableMemoryProportion": "much"}, {"partialsType": "double"}])
def test_flags_that_say_nothing(flags: dict) -> None:
    with pytest.raises(ConfigurationError, match="Received: '(much|double)'"):
        Assumptions.from_options(flags, {}, {})


def test_a_chip_of_io_tiles_alone() -> None:
    with pytest.raises(ConfigurationError, match="fewer I/O tiles than the 32 tiles"):
        Assumptions(io_tiles=32).compute_target(target("ipu2", tiles=32))
