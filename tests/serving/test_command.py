"""`python -m ipu.serving` as a process: it prints its address, imports no TensorFlow, and ends on a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interrupting import HANGS_SECONDS, PATIENCE_SECONDS, wait_for
from tests.keras.helpers import TOLERANCE
from tests.serving.helpers import Client, samples

ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


def test_the_server_as_a_process(mlp: tuple[Path, Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-X", "importtime", "-m", "ipu.serving", str(mlp[0]), "--port", "0"]
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors, env=ENVIRONMENT) as process:
        try:
            serving = re.compile(r"Serving http://127\.0\.0\.1:(\d+)/v1/models/mlp, version 3")
            wait_for(lambda: serving.search(log.read_text()) is not None or process.poll() is not None)
            found = serving.search(log.read_text())
            assert found is not None, log.read_text()[-2000:]
            client = Client(int(found[1]))
            features = samples(4)
            status, answer = client.predict({"instances": features.tolist()})
            assert status == 200
            expected = mlp[1].predict(features, verbose=0)
            np.testing.assert_allclose(answer["predictions"], expected, rtol=TOLERANCE, atol=TOLERANCE)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
    text = log.read_text()
    assert "Stopped" in text
    assert re.search(r"\|\s+numpy$", text, re.MULTILINE) and not re.search(
        r"\|\s+(tensorflow|keras)$", text, re.MULTILINE
    )
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "no manifest", "broken manifest", "another program", "cut program", "no program"]
)
def test_what_cannot_be_served(kind: str, mlp: tuple[Path, Any], tmp_path: Path) -> None:
    import shutil

    from engine.errors import InvalidFile
    from engine.serving.servable import open_servable

    target = tmp_path / "1"
    if kind != "missing":
        shutil.copytree(mlp[0] / "3", target)
    manifest = target / "assets" / "ipu_serving.json"
    if kind == "empty":
        shutil.rmtree(target)
        target.mkdir()
    elif kind == "no manifest":
        manifest.unlink()
    elif kind == "broken manifest":
        manifest.write_text(manifest.read_text().replace('"executable": "', '"executable": "../../'))
    elif kind == "another program":
        manifest.write_text(manifest.read_text().replace('"float32"', '"int32"'))
    elif kind in ("cut program", "no program"):
        [program] = (target / "assets").glob("*.popef")
        program.unlink() if kind == "no program" else program.write_bytes(program.read_bytes()[:-7])
    with pytest.raises(InvalidFile, match="Expected"):
        open_servable(target)


def test_a_model_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ipu.serving", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=HANGS_SECONDS)
    assert ended.returncode == 1
    assert "Expected a SavedModel" in ended.stderr and "Traceback" not in ended.stderr
