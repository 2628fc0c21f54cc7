"""Programs that fit and programs that do not: the quick bound, the error, and its levers."""

from __future__ import annotations

import time

import pytest

from engine.errors import OutOfTileMemory
from engine.profile.fit import SMALL, certainly_fits, check_fit
from engine.profile.options import Assumptions
from engine.profile.program_estimate import estimate
from engine.target import target
from tests.profile.programs import dense_step, elementwise, product
from tests.profile.training_steps import deep_step

PROGRAMS = (
    dense_step(), dense_step(64, 2000, 1000), deep_step(), deep_step(2048, 256, 4), elementwise("tanh", 3_000_000),
    elementwise("sqrt", 7), product(3000, 17, 900), product(1, 4096, 4096, role="variable"),
)  # fmt: skip


@pytest.mark.parametrize("tiles", [1, 7, 64, 368, 1472])
def test_what_certainly_fits_does_fit(tiles: int) -> None:
    small = target("ipu2", tiles)
    for program in PROGRAMS:
        if certainly_fits(program, small):
            found = estimate(program, small)
            assert found.fits
            assert found.tiles.always_live_bytes.max() <= SMALL * small.bytes_per_tile


def test_small_programs_need_no_estimate() -> None:
    assert certainly_fits(dense_step(), target("ipu2"))
    assert not certainly_fits(dense_step(64, 2000, 1000), target("ipu2", tiles=16))
    generous = Assumptions(available_memory_proportion=0.9)
    assert not certainly_fits(dense_step(), target("ipu2"), generous)


def test_the_error_has_the_estimate_and_names_remedies() -> None:
    small, program = target("ipu2", tiles=8), deep_step(4096, 128, 8)
    with pytest.raises(OutOfTileMemory) as raised:
        check_fit(program, small)
    message, found = str(raised.value), raised.value.estimate
    assert found.memory.peak_fullest == estimate(program, small).memory.peak_fullest
    lines = message.split("What to change")[1].splitlines()[1:-2]
    proposed = [line for line in lines if "suffices alone" in line or "not enough alone" in line]
    enough = [line for line in proposed if "suffices alone" in line]
    assert enough == proposed[:3] and all("not enough alone" in line for line in proposed[3:])
    assert "a smaller batch, 256 in place of 4096" in enough[0]
    assert "the same update by 16 replicas with batches of 256" in enough[1]
    assert "gradient accumulation over micro-batches of 256" in enough[2]
    needed = [int(line.split()[0].replace(",", "")) for line in proposed]
    assert needed == [found.memory.peak_fullest - lever.saves for lever in raised.value.levers]
    assert max(needed[:3]) <= small.bytes_per_tile < min(needed[3:])
    assert max(map(len, message.splitlines())) <= 120
    assert "dense_" in message.split("The layers with most bytes")[1].split("What to change")[0]
    assert isinstance(raised.value, MemoryError)


def test_what_is_only_a_warning_proposes_nothing() -> None:
    with pytest.raises(OutOfTileMemory) as raised:
        check_fit(deep_step(4096, 128, 8), target("ipu2", tiles=8), proposing=False)
    assert not raised.value.levers and "What to change" not in str(raised.value)


def test_where_nothing_suffices_it_says_so() -> None:
    with pytest.raises(OutOfTileMemory, match="Nothing that was estimated makes it fit, alone or together"):
        check_fit(deep_step(64, 2000, 2), target("ipu2", tiles=8))


def test_it_takes_no_time_to_see_that_a_program_is_small() -> None:
    chip, making, checking = target("ipu2"), [], []
    for _ in range(5):
        start = time.process_time()
        program = deep_step()
        made = time.process_time()
        check_fit(program, chip)
        checking.append(time.process_time() - made)
        making.append(made - start)
    assert min(checking) < 0.2 * min(making), (checking, making)
