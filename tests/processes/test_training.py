"""Four replicas in 1, 2 and 4 processes: collectives, and models of both Keras, have the results of one process."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

from ipu._internal.processes.settings import LOCAL_REPLICAS
from tests import forking
from tests.exploring import sample, seed
from tests.interrupting import wait_for
from tests.processes.test_launcher import PROGRAMS, run

pytest.importorskip("mpi4py", exc_type=ImportError)


def process_of_mpi(*program: str) -> None:
    """Runs a program and then ends MPI, as an exiting interpreter does and a fork does not."""
    forking.program(*program)
    atexit._run_exitfuncs()
    from mpi4py import MPI

    MPI.Finalize()


def write_end(begun: Path, status: int | None, output: str) -> None:
    """Makes a process of MPI's launcher print the output of its fork, and end with its status."""
    begun.with_suffix(".ending").write_text(json.dumps([status, output]))
    begun.with_suffix(".ending").rename(begun.with_suffix(".end"))


def run_in_forks(folder: Path, processes: int, sizes: tuple[str, ...], program: tuple[str, ...]) -> tuple[int, str]:
    """The exit code of `python -m ipu.run` and the output of its processes, which run the program in forks."""
    folder.mkdir()
    command = [sys.executable, "-m", "ipu.run", "-n", str(processes), *sizes, "--", str(PROGRAMS / "in_forks.py")]
    launching = subprocess.Popen([*command, str(folder)], stderr=subprocess.PIPE, text=True)
    with launching as launcher, ThreadPoolExecutor(processes) as pool:
        begun = [folder / f"{rank}.begin" for rank in range(processes)]
        forks: list[forking.Fork] = []
        try:
            assert wait_for(lambda: launcher.poll() is not None or all(each.exists() for each in begun))
            for each in begun:
                forks.append(forking.Fork(process_of_mpi, *program, **json.loads(each.read_text())))
            running = {pool.submit(fork.end): each for fork, each in zip(forks, begun, strict=True)}
            while running:
                ended, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                results = [(running.pop(future), future.result()) for future in ended]
                for each, (status, output) in results:
                    write_end(each, status, output)
                # Other forks may wait for one that has failed, or that MPI's launcher has ended.
                if any(status for _, (status, _) in results) or (running and launcher.poll() is not None):
                    for fork in forks:
                        fork.kill()
        finally:
            for fork in forks:
                fork.kill()
            for each in begun:
                if not each.with_suffix(".end").exists():
                    write_end(each, 1, "")
        _, output = launcher.communicate()
    return launcher.returncode, output


def results(folder: Path, processes: int, *models: str, forks: bool = False) -> dict[str, np.ndarray]:
    """The results of four replicas in `processes` processes: of MPI if there are several, or their forks."""
    file = folder / f"results{processes}.npz"
    program = (str(PROGRAMS / "training.py"), str(file), *models)
    if processes > 1:
        sizes = ("--replicas", str(4 // processes), "--workers", "1", "--bucket-bytes", "256")
        if forks:
            status, output = run_in_forks(folder / "forks", processes, sizes, program)
        else:
            done = run("-n", str(processes), *sizes, "--", *program)
            status, output = done.returncode, done.stderr
    else:
        status, output = forking.run(forking.program, *program, **{LOCAL_REPLICAS: "4"})
    assert status == 0, output[-3000:]
    with np.load(file) as found:
        return dict(found)


def check(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Asserts equality except for the order of sums; collectives must be exact."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        tolerance = 0.0 if name.startswith(("collectives", "drawn", "variable")) else 2e-5
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.slow
def test_two_processes_of_two_replicas_train_as_one_of_four(tmp_path: Path) -> None:
    models = sample(["keras:1:1", "tf_keras:2:1", "tf_keras:4:1:2", "keras:4:1:2"], 1)
    one = results(tmp_path, 1, *models)
    assert one["collectives.sum"].tolist() == [[10.0 * k for k in range(8)]] * 4
    assert one["collectives.pairs"][:, 1].tolist() == [3, 3, 7, 7] and one["collectives.index"].tolist() == [0, 1, 2, 3]
    assert len(np.unique(one["drawn"])) == 12 and one["variable"].tolist() == [0]
    check(results(tmp_path, 2, *models, forks=seed() is None), one)


@pytest.mark.slow
@pytest.mark.explore
def test_four_processes_give_the_same_bits_in_each_run(tmp_path: Path) -> None:
    models = ("keras:2:2", "tf_keras:1:2", "keras:4:2", "keras:4:2:2")
    four, again = results(tmp_path, 4, *models), results(tmp_path, 4, *models)
    for name in [each for each in four if each.startswith("keras:4:2:2.")]:
        np.testing.assert_allclose(four[name], four[name.replace(":2:2", ":2")], rtol=2e-5, atol=2e-5)
    assert all(np.array_equal(again[name], value) for name, value in four.items())
    one = results(tmp_path, 1, *models[:2])
    check({name: four[name] for name in one}, one)
