"""Environment variables that switch parts of the engine off: 0 and 1, and an error for anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.errors import ConfigurationError
from engine.machine_code import helper_process, processor

SWITCHES: dict[str, Callable[[], bool]] = {
    "SOFTWARE_IPU_AMX": processor.may_use_matrix_registers,
    "SOFTWARE_IPU_COMPILE_AHEAD": helper_process.may_start,
}


@pytest.mark.parametrize("variable", SWITCHES)
def test_values_of_switches(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_used = SWITCHES[variable]
    monkeypatch.setattr(processor, "has_matrix_registers", lambda: True)
    monkeypatch.setattr(helper_process, "_is_python", lambda executable: True)
    monkeypatch.delenv(variable, raising=False)
    assert is_used()
    for text, expected in (("0", False), (" 0 ", False), ("1", True), ("", True)):
        monkeypatch.setenv(variable, text)
        assert is_used() is expected
    for text in ("false", "off", "2", "-1", "00"):
        monkeypatch.setenv(variable, text)
        with pytest.raises(ConfigurationError, match=f"Expected 0 or 1 in {variable}. Received: '{text}'"):
            is_used()
