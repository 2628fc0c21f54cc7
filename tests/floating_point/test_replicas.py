"""Rounding on replicas: each replica rounds its own values, and equal ones are rounded once; REPLICA_IDENTICAL_ONLY."""

from __future__ import annotations

import numpy as np
import pytest

from engine.ir import Module
from engine.ir.builder import Builder
from engine.ir.device_operations import ALL_GATHER, REPLICA_INDEX
from engine.ir.floating_point import FloatingPoint, StochasticRounding
from engine.ir.shape import Shape
from engine.partition.replicate import replicate
from tests.floating_point.programs import check_bits

SIZE, REPLICAS = 3000, 2
X = np.full(SIZE, 1 + 2.0**-12, np.float32)


def program() -> Module:
    """Rounds a value that is equal on all replicas, and one that differs, which is gathered from all replicas."""
    b = Builder("program")
    x = b.parameter("f32", (SIZE,))
    index = b.instruction("custom-call", Shape("s32"), (), custom_call_target=REPLICA_INDEX)
    own = b.add(x, b.broadcast(b.convert(index, "f32"), (SIZE,), ()))
    gathered = b.instruction(
        "custom-call",
        Shape("f16", (REPLICAS, SIZE)),
        (b.convert(own, "f16"),),
        custom_call_target=ALL_GATHER,
        backend_config='{"replica_group_size": null}',
    )
    return b.module(b.tuple(b.convert(x, "f16"), gathered))


@pytest.mark.parametrize(("rounding", "differing"), [("off", 1), ("on", 2), ("replica-identical", 1)])
def test_where_it_rounds_stochastically(rounding: StochasticRounding, differing: int) -> None:
    module = replicate(program(), ["feed"], REPLICAS).module
    same, own, _ = check_bits(module, [X], FloatingPoint(rounding, nan_on_overflow=True))
    assert np.unique(same).size == (1 if rounding == "off" else 2)
    assert np.unique(own[0]).size == differing
    # 2 + 2**-12 lies a quarter as far between its neighbours, and gets other bits than replica 0.
    assert np.unique(own[1]).size == differing
    if rounding == "on":
        assert ((own[0] > 1) != (own[1] > 2)).any() and ((same > 1) != (own[0] > 1)).any()
