"""`python -m tests` runs each test once and reports its outcome, even if a test kills its worker."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engine.machine_code import instruction_sets
from engine.machine_code.processor import X86
from ipu._internal.processes.signs import state_of
from tests.__main__ import BESIDE, ENGINE, HERE, of_processor

TESTS = """
import os, pytest
def test_passes(): pass
def test_fails():
    print("printed")
    assert 1 == 2
def test_kills(): os._exit(3)
@pytest.fixture
def broken():
    yield
    raise ValueError
def test_after(broken): pass
@pytest.mark.skip
def test_is_left_out(): pass
"""

WAITS = """
import os, pytest, signal, subprocess, time
@pytest.fixture(scope="session")
def child():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()
def test_fails(): assert "this" == "shown"
def test_waits(child):
    print(child, file=open("FOLDER/pid", "w"))
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600)
"""

NAMED = """
from engine.machine_code.processor import lanes, target
def test_lanes(): assert (target()[0], lanes()) == ("x86-64-v2", 4)
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests", "-q", "-n", "2", *arguments, str(folder)]
    done = subprocess.run(command, cwd=HERE.parent, env=os.environ, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def test_outcomes_are_those_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text("def test_passes(tmp_path): pass")
    code, output = run(tmp_path, f"--junitxml={tmp_path}/report.xml")
    assert code == 1 and "1 failed, 6 passed, 1 skipped, 2 errors" in output
    assert "printed" in output and "test_kills" in output and "ended with exit code 3" in output
    names = [case.get("name") for case in ElementTree.parse(tmp_path / "report.xml").iter("testcase")]
    others = {"test_after", "test_fails", "test_is_left_out", "test_kills"}
    assert {str(name) for name in names} == {"test_passes", *others}
    code, output = run(tmp_path, "-x", "-k", "all")
    assert code == 1 and "1 failed, 1 passed" in output


def test_an_interrupted_run_tells_what_ran_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(WAITS.replace("FOLDER", str(tmp_path)))
    code, output = run(tmp_path)
    assert code == 2 and "Interrupted: " in output and output.count("test_all.py::test_waits") == 1
    assert "assert 'this' == 'shown'" in output and "1 failed" in output
    assert not state_of(int((tmp_path / "pid").read_text()))


def test_a_test_that_hangs_fails_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text("import time\ndef test_hangs(): time.sleep(600)\ndef test_passes(): pass")
    code, output = run(tmp_path, "-o", "faulthandler_timeout=2")
    assert code == 1 and "1 passed, 1 error" in output and "test_hangs" in output


@pytest.mark.skipif(not X86, reason="levels of x86-64")
def test_code_is_compiled_for_the_processor_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(NAMED)
    code, output = run(tmp_path, "--processor", "x86-64-v2")
    assert code == 0 and "1 passed" in output


def test_a_processor_with_fewer_instructions_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentTypeError, match="Expected one of x86-64, x86-64-v2, .* Received: 'zen'"):
        of_processor("zen")
    monkeypatch.setattr(instruction_sets, "flags", lambda: frozenset({"pni", "ssse3", "sse41", "sse42"}))
    with pytest.raises(ArgumentTypeError, match="Expected a processor of x86-64-v2. Received: one without popcnt"):
        of_processor("x86-64-v2")


def test_what_runs_beside_the_others_and_what_is_of_the_engine_is_there() -> None:
    assert [name for name in (*BESIDE, *ENGINE) if not (HERE / name).exists()] == []
