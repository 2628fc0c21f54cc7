"""The environment variable that switches a part of the engine off: 0 and 1, and an error for anything else."""

from __future__ import annotations

import pytest

from engine.errors import ConfigurationError
from engine.machine_code import processor

VARIABLE = "SOFTWARE_IPU_AMX"


def test_values_of_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "has_matrix_registers", lambda: True)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert processor.may_use_matrix_registers()
    for text, expected in (("0", False), (" 0 ", False), ("1", True), ("", True)):
        monkeypatch.setenv(VARIABLE, text)
        assert processor.may_use_matrix_registers() is expected
    for text in ("false", "off", "2", "-1", "00"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(ConfigurationError, match=f"Expected 0 or 1 in {VARIABLE}. Received: '{text}'"):
            processor.may_use_matrix_registers()
