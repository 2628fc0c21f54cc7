"""`engine.load`: inputs and outputs by name and in order, batches, threads, errors, and nothing of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.errors import ConfigurationError
from engine.files.executable_file import ExecutableFile, write_executable
from engine.loaded import LoadedExecutable
from tests.files.programs import classifier, expected
from tests.interrupting import HANGS_SECONDS


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> LoadedExecutable:
    path = tmp_path_factory.mktemp("programs") / "classifier.poplar_exec"
    write_executable(path, classifier())
    return engine.load(path)


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)


def agree(results: Any, x: np.ndarray, file: ExecutableFile | None = None) -> None:
    wanted = expected(file or classifier(), x)
    named = results if isinstance(results, dict) else dict(zip(wanted, results, strict=True))
    assert named.keys() == wanted.keys()
    for name, value in wanted.items():
        assert named[name].dtype == np.float32 and named[name].shape == value.shape
        np.testing.assert_allclose(named[name], value, rtol=1e-5, atol=1e-6)


def test_names_give_names_and_a_list_gives_a_list(program: LoadedExecutable) -> None:
    x = rows(4)
    agree(program.run({"x": x}), x)
    results = program.run([x])
    assert isinstance(results, list)
    agree(results, x)
    agree(program.run({"x": x.tolist()}), x)
    agree(program.run({"x": x.astype(np.float64)[:, ::-1][:, ::-1]}), x)


def test_it_says_what_it_takes(program: LoadedExecutable) -> None:
    assert [(i.name, i.shape, i.dtype) for i in program.inputs] == [("x", (4, 5), np.float32)]
    assert [(o.name, o.shape) for o in program.outputs] == [("scores", (4, 3)), ("sums", (4,))]
    assert program.batch_size == 4 and program.signature.inputs == program.inputs


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 21])
def test_any_number_of_rows(program: LoadedExecutable, count: int) -> None:
    x = rows(count, seed=count)
    agree(program.run_rows({"x": x}), x)


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ({}, ValueError, r"Expected inputs \['x'\]. Received: \[\]"),
        ({"y": 1}, ValueError, r"Received: \['y'\]"),
        ({"x": np.zeros((4, 5)), "y": 1}, ValueError, r"Expected inputs \['x'\]"),
        ([], ValueError, "Expected 1 inputs"),
        ([np.zeros((4, 6))], ValueError, r"Expected 'x' to be float32\[4, 5\]. Received: \[4, 6\]"),
        ([np.zeros((3, 5))], ValueError, r"Received: \[3, 5\]"),
        ([np.zeros((4, 5), np.complex64)], TypeError, "Expected float32 for 'x'. Received: complex64"),
        ([[["a"] * 5] * 4], TypeError, "Expected float32 for 'x'"),
        ([[[1.0] * 5, [1.0] * 4]], ValueError, "Expected an array for 'x'"),
        (np.zeros((1, 4, 5)), TypeError, "Expected a dict, a list or a tuple"),
    ],
)
def test_inputs_that_do_not_fit(program: LoadedExecutable, inputs: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        program.run(inputs)


def test_threads_share_a_program(program: LoadedExecutable) -> None:
    def work(seed: int) -> None:
        for count in (4, 9):
            x = rows(count, seed)
            agree(program.run_rows([x]), x)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))


def test_variables_go_on_from_run_to_run() -> None:
    program = LoadedExecutable(classifier(updates=True))
    x = rows(4)
    assert [int(program.run([x])[2]) for _ in range(3)] == [14, 16, 18]
    assert program.batch_size is None
    with pytest.raises(ConfigurationError, match="one batch size"):
        program.run_rows([x])


def test_variables_without_values_are_given_by_name() -> None:
    file = replace(classifier(updates=True), variables={}, variable_names={3: "runs"})
    program = LoadedExecutable(file, {"runs": 20})
    assert program.run({"x": rows(4)})["runs"] == 40
    for weights, kind in (
        ({}, ValueError),
        ({"run": 1}, ValueError),
        ({"runs": [1]}, ValueError),
        ({"runs": 1.5}, TypeError),
    ):
        with pytest.raises(kind, match="runs"):
            LoadedExecutable(file, weights)


WITHOUT_TENSORFLOW = """
import sys, numpy as np, engine
assert "numba" not in sys.modules
program = engine.load(sys.argv[1])
print(program.run({"x": np.ones((4, 5))})["sums"].tolist())
assert not {"tensorflow", "keras", "tf_keras", "ipu"} & set(sys.modules)
"""


def test_a_process_without_tensorflow(tmp_path: Path) -> None:
    write_executable(tmp_path / "program.poplar_exec", classifier())
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, str(tmp_path / "program.poplar_exec")]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=HANGS_SECONDS
    )
    assert result.returncode == 0, result.stderr
    wanted = expected(classifier(), np.ones((4, 5), np.float32))["sums"]
    np.testing.assert_allclose(eval(result.stdout), wanted, rtol=1e-5)
