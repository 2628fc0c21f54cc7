"""All passes and the schedule on train steps traced from Keras: the same results from half the instructions.

The samples are serialised HloModuleProtos of small models (batch 4 or 5) without source locations: two
convolutions with batch normalisation and momentum; an LSTM over 7 steps and a transformer block with Adam.
"""

from pathlib import Path

import pytest

from engine.passes.liveness import peak_liveness
from engine.passes.order import schedule
from ipu._internal.compiler.hlo import import_hlo
from tests.passes.checking import alive, assert_same_results, simplified

DATA = Path(__file__).parent / "data"
MODELS = ["convolutional", "lstm", "transformer"]


@pytest.fixture(scope="module", params=MODELS)
def traced(request):
    return import_hlo((DATA / f"{request.param}_train_step.pb").read_bytes())


def test_same_results(traced):
    after = simplified(traced)
    assert_same_results(traced, after, tolerance=1e-5)
    assert_same_results(traced, schedule(after), tolerance=1e-5)


def test_half_the_instructions_and_nothing_left_to_do(traced):
    after = simplified(traced)
    count = sum(len(computation.instructions) for computation in after.computations())
    assert 2 * count < sum(len(computation.instructions) for computation in traced.computations())
    assert simplified(after) is after


def test_no_moves_left_around_products(traced):
    left = alive(simplified(traced))
    assert not {"copy", "call", "reverse"} & set(left)
    assert left.count("transpose") <= 4


def test_schedule_needs_no_more_memory(traced):
    after = simplified(traced)
    assert peak_liveness(schedule(after).entry) <= peak_liveness(after.entry)
