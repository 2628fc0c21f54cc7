"""`python -m ipu.run --tf1`, and interpreters that are given by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from ipu._internal.commands.version1_hparams import HParams
from ipu._internal.processes.launcher import without_interpreter

HERE = Path(__file__).parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m ipu.run` with these arguments."""
    command = [sys.executable, "-m", "ipu.run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_program_of_version_1_runs_unchanged() -> None:
    done = run("--tf1", str(HERE / "version1_program.py"), "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("trained as in NumPy [1, 2] True")
    told = [line for line in done.stderr.splitlines() if line.startswith("python -m ipu.run --tf1: ")]
    for name in ("float", "tf.contrib", "distribution_strategy_context"):
        assert any(name in line for line in told), told


def test_what_cannot_be_supplied_is_named_before_the_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf\nprint('begins')\ntf.contrib.seq2seq.tile_batch\ntf.nothing\ntf.python.ipu.nothing\n"
    )
    done = run("--tf1", "--", "python", str(program))
    assert done.returncode == 1 and "begins" in done.stdout
    for line, name in ((3, "tensorflow.contrib.seq2seq.tile_batch"), (4, "tensorflow.nothing")):
        assert f"program.py:{line}: {name}: today's TensorFlow has it no longer, and it is not supplied." in done.stderr
    assert "program.py:5: tensorflow.python.ipu.nothing: it is no documented name of this API." in done.stderr
    assert done.stderr.index("is not supplied") < done.stderr.index("Traceback")


@pytest.mark.parametrize("imported", ["import tensorflow.compat.v1 as tf", "from tensorflow.compat import v1 as tf"])
def test_the_version_1_api_of_version_2_has_what_is_supplied(imported: str, tmp_path: Path) -> None:
    lines = [imported, "import tensorflow", "from tensorflow.compat.v1.estimator import EstimatorSpec"]
    lines += ["print(EstimatorSpec is tf.estimator.EstimatorSpec, tf.contrib is tensorflow.contrib)"]
    lines += ["print(tensorflow.compat.v1.placeholder is tf.placeholder, tf.compat.as_str(b'text'), tf.compat.v2.add)"]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines))
    done = run("--tf1", str(program))
    assert done.returncode == 0 and "is not supplied" not in done.stderr, done.stderr
    assert done.stdout.startswith("True True\nTrue text <function add ")


def test_hyperparameters_keep_their_types() -> None:
    parameters = HParams(rate=0.1, layers=[8, 4], train=True, name="x", none=None)
    parameters.parse("rate=1,layers=[6,4,2],train=false,name=3").set_hparam("none", "a")
    expected = {"rate": 1.0, "layers": [6, 4, 2], "train": False, "name": "3", "none": "a"}
    assert parameters.values() == expected and isinstance(parameters.rate, float)
    assert "rate" in parameters and "other" not in parameters and parameters.get("other", 3) == 3
    with pytest.raises(KeyError, match="other"):
        parameters.parse("other=1")
    with pytest.raises(ValueError, match="taken"):
        parameters.add_hparam("rate", 2)


@pytest.mark.parametrize("name", ["python", "python3", "python3.11", "/usr/bin/python3"])
def test_interpreters_by_name(name: str) -> None:
    assert without_interpreter([name, "train.py", "-n", "3"]) == ["train.py", "-n", "3"]
    with pytest.raises(ConfigurationError, match="Expected a program"):
        without_interpreter([name])


def test_a_program_may_be_named_as_an_interpreter_begins() -> None:
    assert without_interpreter(["python_train.py"]) == ["python_train.py"]
    done = run("train.py")
    assert done.returncode == 2 and "--processes" in done.stderr
