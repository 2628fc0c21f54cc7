"""The table of options' effects: complete, and held by a test for each effect it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipu._internal.config.effects import EFFECTS, KINDS, OLDER
from ipu._internal.config.legacy import IpuOptions
from ipu._internal.config.library_flags import LIBRARIES, REPORTS
from ipu.config import IPUConfig
from tests.config.test_cost_effects import CASES

ROOT = Path(__file__).parent.parent.parent

FLOATING_POINT = "tests/floating_point/test_keras.py"
SHOWN_BY = {
    "allow_recompute": "tests/strategy/test_pipelining_schedules.py",
    "auto_select_ipus": "tests/config/test_system.py",
    "device_connection.type": "tests/strategy/test_executable_folders.py",
    "device_connection.enable_remote_buffers": "tests/keras/test_pipelining_options.py",
    "floating_point_behaviour.inv": FLOATING_POINT,
    "floating_point_behaviour.div0": FLOATING_POINT,
    "floating_point_behaviour.oflo": FLOATING_POINT,
    "floating_point_behaviour.esr": FLOATING_POINT,
    "floating_point_behaviour.nanoo": FLOATING_POINT,
    "floating_point_behaviour.set_all": "tests/config/test_system.py",
    "norms.experimental.distributed_batch_norm_replica_group_size": "tests/keras/test_batch_norm_groups.py",
    "experimental.multi_replica_distribution.process_count": "tests/processes/programs/training.py",
    "experimental.multi_replica_distribution.process_index": "tests/processes/programs/training.py",
    "optimizations.enable_fast_math": "tests/config/test_fast_math.py",
    "optimizations.math.fast": "tests/config/test_fast_math.py",
    "device_connection.version": "tests/config/test_chips.py",
    "optimizations.maximum_inter_ipu_copies_buffer_size": "tests/profile/test_pipeline_estimate.py",
    "optimizations.prefetch_data_streams": "tests/strategy/test_infeeds.py",
    "select_ipus": "tests/config/test_system.py",
    "selection_order": "tests/profile/test_pipeline_estimate.py",
    "serialization_output_folder": "tests/strategy/test_executable_folders.py",
    **dict.fromkeys(
        (name for name, effect in OLDER.items() if name.startswith("profiling.") and effect.kind != "none"),
        "tests/operators/test_event_trace.py",
    ),
    **dict.fromkeys(CASES, "tests/config/test_cost_effects.py"),
}
"""The file that shows the option's effect, for each option."""


def test_every_option_has_a_row_and_every_row_an_option() -> None:
    assert EFFECTS.keys() == IPUConfig().to_dict().keys()
    assert EFFECTS.keys() | OLDER.keys() == IpuOptions().to_dict().keys()
    assert LIBRARIES.keys() | REPORTS.keys() <= IpuOptions().to_dict().keys()


@pytest.mark.parametrize("name", sorted({**EFFECTS, **OLDER}))
def test_a_promised_effect_is_shown_by_a_test(name: str) -> None:
    effect = {**EFFECTS, **OLDER}[name]
    assert effect.kind in KINDS and effect.text
    assert (effect.kind != "none") == (name in SHOWN_BY), "a row that promises an effect needs a test, and no other"
    if name in SHOWN_BY:
        source = (ROOT / SHOWN_BY[name]).read_text()
        attribute = name.rpartition(".")[2]
        assert re.search(rf"\b{attribute}\b", source.replace("__", ".")), SHOWN_BY[name]
