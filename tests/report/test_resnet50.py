"""A report of a real model: ResNet50's training step, in size and time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from engine.report import make_report
from engine.target import target
from tests.keras.helpers import KITS

SHARE = 0.5
"""The most processor time that a report may cost, as a share of the time to make its program in the same process."""
BYTES = 2_000_000


@pytest.mark.explore
def test_the_report_is_small_and_soon_made(tmp_path: Path) -> None:
    from ipu._internal.profiling.programs import program_of_model

    kit = KITS["keras"]
    model = kit.ipu_model(
        lambda: kit.keras.applications.ResNet50(
            weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
        ),
        loss=kit.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = np.zeros((8, 64, 64, 3), np.float32), np.zeros(8, np.int32)
    begin = time.process_time()
    program = program_of_model(model, "train", x, y, 8).engine_program
    making = time.process_time() - begin
    taken = []
    for number in range(3):
        begin = time.process_time()
        made = make_report(program, target("ipu2"), name="resnet50")
        files = made.save(tmp_path / f"{number}.html")
        taken.append(time.process_time() - begin)
    assert files[0].stat().st_size < BYTES
    assert min(taken) < SHARE * making, (taken, making)
    assert made.fits and 1000 < len(made.data["operations"]) < 3000
    assert any("conv5_block3" in row["name"] for row in made.data["operations"])
