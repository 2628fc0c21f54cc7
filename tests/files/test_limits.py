"""Programs of files above a limit are refused, with the limit's name; errors of the machine are other errors."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import aot, loaded, private_files, resource_limits
from engine.errors import ConfigurationError, InvalidFile, ResourceLimit
from engine.files import executable_file
from engine.ir.builder import Builder
from engine.report.command import main as report_command
from engine.resource_limits import check_time, interruptible, within_seconds
from engine.serving import __main__ as server
from tests.files.programs import plain_file
from tests.files.test_hostile import calling_twice
from tests.interrupting import PATIENCE_SECONDS


def chain(length: int) -> bytes:
    """A file that computes y = y * logistic(y) that many times."""
    builder = Builder()
    y = builder.parameter("f32", (4,))
    for _ in range(length):
        y = builder.multiply(y, builder.elementwise("logistic", y))
    return plain_file(builder.module(builder.tuple(y)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a.poplar_exec"
    made.write_bytes(chain(100))
    return made


LIMITS = [
    ({"instructions": 150}, "at most 150 instructions.*limits.instructions=...."),
    ({"instructions": 10}, "at most 2560 bytes of JSON"),
    ({"bytes": 1000}, "at most 1000 bytes in .*a.poplar_exec.*limits.bytes=...."),
    ({"seconds": 1e-3}, "at most 0.001 seconds to compile .*a.poplar_exec.*limits.seconds=...."),
]


@pytest.mark.parametrize("given, words", LIMITS)
def test_what_is_above_a_limit_is_refused_by_its_name(given: dict[str, float], words: str, path: Path) -> None:
    with engine.limits(**given), pytest.raises(ResourceLimit, match=words):
        engine.load(path)
    with engine.limits(**given), pytest.raises(ResourceLimit, match=words):
        aot.compile_ahead(path, path.with_suffix(".objects"))


def test_files_larger_than_a_share_of_memory_are_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holes cost no disk, and some files of /proc have as many bytes as there are addresses."""
    monkeypatch.setattr(private_files, "machine_memory", lambda: 1 << 24)
    with path.open("r+b") as file:
        file.truncate((1 << 22) + 1)
    with pytest.raises(ResourceLimit, match=r"at most 4194304 bytes in .*a.poplar_exec.*limits.bytes=...."):
        engine.load(path)
    with engine.limits(bytes=1 << 23), pytest.raises(InvalidFile, match="Received: 4194305"):
        engine.load(path)
    monkeypatch.undo()
    if (pages := Path("/proc/self/pagemap")).exists():
        with pytest.raises(ResourceLimit, match="/proc/self/pagemap"):
            private_files.read_regular(pages)


def test_limits_are_raised_and_lowered_one_by_one(tmp_path: Path) -> None:
    deep = tmp_path / "deep.poplar_exec"
    deep.write_bytes(calling_twice(70, 1))
    with pytest.raises(ResourceLimit, match="at most 64 levels of calls. Received: 65"):
        engine.load(deep)
    with engine.limits(levels=100), engine.limits(instructions=1000):
        x = np.arange(4, dtype=np.float32)
        np.testing.assert_array_equal(engine.load(deep).run([x])[0], 2 * x)
        with engine.limits(levels=8), pytest.raises(ResourceLimit, match="at most 8 levels"):
            engine.load(deep)


@pytest.mark.parametrize("given", [{"second": 1}, {"seconds": 0}, {"seconds": "1"}, {"bytes": 1.5}, {"levels": True}])
def test_other_limits_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="Expected limits above 0"), engine.limits(**given):
        pass


def test_memory_of_a_program_is_bounded(tmp_path: Path) -> None:
    builder = Builder()
    x = builder.parameter("f32", (1024,))
    wide = builder.broadcast(x, (1024, 1024), (0,))
    product = builder.dot(wide, builder.elementwise("tanh", builder.transpose(wide, (1, 0))))
    path = tmp_path / "a.poplar_exec"
    path.write_bytes(plain_file(builder.module(builder.tuple(builder.slice(product, (0, 2, 1), (0, 2, 1))))))
    with engine.limits(bytes=1 << 22), pytest.raises(ResourceLimit, match="at most 4194304 bytes of memory for a prog"):
        engine.load(path)
    with engine.limits(bytes=1 << 20), pytest.raises(ResourceLimit, match="at most 1048576 bytes of an instruction"):
        engine.load(path)
    with engine.limits(bytes=1 << 26):
        engine.load(path)


def test_long_applied_computations_are_refused() -> None:
    body = Builder("long")
    y = body.add(body.parameter("f32"), body.parameter("f32"))
    for _ in range(300):
        y = body.elementwise("sine", y)
    builder = Builder()
    x = builder.parameter("f32", (9,))
    reduced = builder.inferred("reduce", (x, builder.constant(0.0)), (body.build(y),), dimensions=(0,))
    with pytest.raises(ResourceLimit, match="at most 256 instructions in what reduce applies. Received: 303"):
        executable_file.from_bytes(plain_file(builder.module(builder.tuple(reduced))), "a file")


@pytest.mark.parametrize(
    "command",
    [
        lambda path: aot.main([str(path), "--limit", "seconds=0.001"]),
        lambda path: server.main("s", [str(path.parent), "--port", "0", "--limit", "seconds=0.001"]),
    ],
)
def test_commands_take_limits(command: Callable[[Path], int], path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(path) == 1
    assert "Expected" in capsys.readouterr().err


def test_reports_are_bounded(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with engine.limits(seconds=1e-3):
        assert report_command(["make", str(path), "-o", str(path.with_suffix(".html"))]) == 2
    assert "at most 0.001 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["seconds", "seconds=", "second=3", "levels=0", "bytes=1e9", "seconds=nan"])
def test_other_limits_are_errors_of_the_command_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        aot.parser().parse_args(["a", "--limit", text])
    assert "expected NAME=VALUE with a number above 0" in capsys.readouterr().err


def test_an_endless_pass_is_ended() -> None:
    begin = time.monotonic()
    with engine.limits(seconds=0.2), pytest.raises(ResourceLimit, match=r"at most 0\.2 seconds .* in a file"):
        with within_seconds("a file"), interruptible():
            while time.monotonic() < begin + 60.0:
                try:
                    sum(range(1000))
                except Exception:
                    continue
    assert time.monotonic() < begin + 60.0


def test_nothing_is_raised_after_the_end() -> None:
    for seconds in np.linspace(1e-4, 3e-3, 40):
        with engine.limits(seconds=float(seconds)):
            try:
                with within_seconds("a file"):
                    with interruptible(), interruptible():
                        sum(range(20_000))
                    check_time()
            except ResourceLimit:
                pass
        sum(range(1000))
    check_time()


def test_an_alarm_before_the_block_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may raise the alarm in `__enter__`, after the context's generator has begun to wait for its block."""

    def entering(self: object) -> None:
        enter(self)
        raise resource_limits._TimeIsUp

    kind = contextlib._GeneratorContextManager
    enter = kind.__enter__
    with engine.limits(seconds=60), pytest.raises(ResourceLimit) as kept, within_seconds("a file"):
        opened = interruptible()
        with monkeypatch.context() as patched:
            patched.setattr(kind, "__enter__", entering)
            with opened:
                raise AssertionError
    assert kept.value is not None
    with engine.limits(seconds=0.01), pytest.raises(ResourceLimit), within_seconds("a file"), interruptible():
        while True:
            pass


def test_a_profiler_runs_after_an_alarm_that_was_stopped() -> None:
    """Tested in its own process: CPython 3.11 never returns from a call while another thread's error is pending."""
    program = (
        "import sys\n"
        "from engine.resource_limits import interruptible, within_seconds\n"
        "with within_seconds('a file'), interruptible():\n"
        "    pass\n"
        "calls = []\n"
        "sys.setprofile(lambda frame, event, _: calls.append(event))\n"
        "(lambda: None)()\n"
        "sys.setprofile(None)\n"
        "assert calls[:2] == ['call', 'return'], calls\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory"), ImportError("no numba")])
def test_errors_of_the_machine_are_not_the_file_s(
    error: Exception, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    for module, name in ((executable_file, "read_module"), (executable_file, "check_module")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fails)
            with pytest.raises(type(error)) as found:
                engine.load(path)
            assert not isinstance(found.value, InvalidFile)
    with pytest.raises(type(error)), loaded.compiling("a file"):
        fails()
    with pytest.raises(InvalidFile, match="one that leads to IndexError"), loaded.compiling("a file"):
        raise IndexError
