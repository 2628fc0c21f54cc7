"""Option flags: unknown ones are refused with the nearest name, those of programs from the IPU's time are accepted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ipu import utils
from ipu._internal.config import library_flags
from ipu._internal.config.library_flags import LIBRARIES, check_flags
from ipu._internal.config.system import current_system
from ipu.config import IPUConfig
from tests.config.test_tree import write


@pytest.mark.parametrize(
    ("attribute", "flags", "nearest"),
    [
        ("matmuls.poplar_options", {"availableMemoryProporton": "0.1"}, "availableMemoryProportion"),
        ("convolutions.poplar_options", {"partialType": "half"}, "partialsType"),
        ("slices.poplar_options", {"availablememoryproportion": 0.1}, "availableMemoryProportion"),
        ("pooling.poplar_options", {"poolUseIntrospective": "false"}, "poolUseIntrospectiveMapping"),
        ("gcl_poplar_options", {"useSynclessCollective": "true"}, "useSynclessCollectives"),
        ("compilation_poplar_options", {"debug.allowOutOfMemry": "true"}, "debug.allowOutOfMemory"),
        ("compilation_poplar_options", {"allowOutOfMemory": "true"}, "debug.allowOutOfMemory"),
        ("matmuls.poplar_options", {1: 2}, ""),
    ],
)
def test_unknown_flags_are_refused(attribute: str, flags: dict[Any, Any], nearest: str) -> None:
    before, config = current_system(), IPUConfig()
    write(config, attribute, flags)
    with pytest.raises(ValueError, match=f"{attribute}.*Received: .*Nearest: '{nearest}"):
        config.configure_ipu_system()
    assert current_system() is before
    write(config, attribute, {})
    config.configure_ipu_system()


@pytest.mark.parametrize(
    ("setter", "argument"),
    [
        ("set_compilation_options", "compilation_options"),
        ("set_convolution_options", "convolution_options"),
        ("set_matmul_options", "matmul_options"),
        ("set_pooling_options", "pooling_options"),
        ("set_gcl_options", "gcl_options"),
        ("set_report_options", "graph_options"),
        ("set_report_options", "execution_options"),
    ],
)
def test_older_setters_refuse_them_at_once(setter: str, argument: str) -> None:
    with pytest.raises(ValueError, match=f"keys of {argument} .*Received: 'no such flag'. Nearest: "):
        getattr(utils, setter)(utils.create_ipu_config(), **{argument: {"no such flag": "1"}})


def test_programs_of_that_time_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    config = IPUConfig()
    config.compilation_poplar_options = {
        "autoReport.all": "true",
        "debug.instrument": "true",
        "exchange.streamBufferOverlap": "none",
        "opt.internalExchangeOptimisationTarget": "memory",
        "target.deterministicWorkers": "false",
        "target.syncReplicasIndependently": "true",
    }
    config.convolutions.poplar_options = {"partialsType": "half", "enableConvDithering": "true"}
    config.matmuls.poplar_options = {"fullyConnectedPass": "INFERENCE_FWD"}
    config.gcl_poplar_options = {"useSynclessCollectives": "true", "method": "broadcast"}
    with caplog.at_level(logging.WARNING, "ipu.config"):
        config.configure_ipu_system()
    assert caplog.records == []


def test_an_unlisted_flag_of_the_engine_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_flags, "_warned", set())
    with caplog.at_level(logging.WARNING, "ipu.config"):
        for _ in range(2):
            utils.set_compilation_options(utils.create_ipu_config(), {"target.flagOfALaterRelease": "1"})
    told = [record.getMessage() for record in caplog.records if "flagOfALaterRelease" in record.getMessage()]
    assert told == ["compilation_options: the flag 'target.flagOfALaterRelease' is not known and has no effect here."]


@pytest.mark.parametrize("attribute", LIBRARIES)
def test_every_listed_flag_is_taken(attribute: str) -> None:
    check_flags(attribute, dict.fromkeys(LIBRARIES[attribute].known, "1"), LIBRARIES[attribute])


@pytest.mark.parametrize("count", [2, 16])
def test_more_processes_than_the_run_has_are_refused(count: int) -> None:
    before, config = current_system(), IPUConfig()
    config.experimental.multi_replica_distribution.process_count = count
    with pytest.raises(ValueError, match=f"process_count 1 .*Received: {count} and 0.*ipu.run --processes {count}"):
        config.configure_ipu_system()
    assert current_system() is before
    config.experimental.multi_replica_distribution.process_count = 1
    config.configure_ipu_system()
