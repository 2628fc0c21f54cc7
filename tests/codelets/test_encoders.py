"""Encoders that are imported late exist, and take the work of their kind."""

from __future__ import annotations

import inspect
import subprocess
import sys

from engine.host.encode import ENCODERS, Late


def test_late_encoders() -> None:
    late = {kind: encoder.find() for kind, encoder in ENCODERS.items() if isinstance(encoder, Late)}
    assert len(late) > 20
    for kind, encoder in late.items():
        (work,) = inspect.signature(encoder).parameters.values()
        assert kind.__name__ in str(work.annotation), (kind, encoder)


def test_no_kind_imports_the_others_codelets() -> None:
    code = "import sys, engine.host.encode; sys.exit('engine.codelets.factors' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
