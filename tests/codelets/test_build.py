"""Codelets are compiled once, kept on disk, and called by address; the intrinsics they are made of."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engine.codelets.language import build, memory
from engine.codelets.language.build import FOLDER, codelet, identity, inner
from engine.codelets.language.memory import load_f32, load_i64, store_i64
from engine.machine_code import keys, processor
from tests.codelets.scaling import scale
from tests.interrupting import HANGS_SECONDS

PROGRAM = """
import sys
import numpy as np
from engine.codelets.language.build import building
from engine.codelets.language.build import FOLDER
from engine.machine_code.keys import folder
from tests.codelets.scaling import scale

names = []
with building(names.append):
    assert names == []
    scale.address
    scale.address
x, y = np.array([0, 12], np.float32), np.zeros(2, np.float32)
parameters = np.array([x.ctypes.data, y.ctypes.data])
scale(parameters.ctypes.data, 1, 2, 0)
print(len(names), int(y.sum()), folder("codelets", FOLDER).name, "numba" in sys.modules)
"""


def run_program(cache: Path, **environment: str) -> list[str]:
    """The words that PROGRAM prints in a new process whose cache is that folder."""
    path = os.pathsep.join(sys.path)
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": path, **environment}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_nothing_compiles_before_the_address_is_read() -> None:
    fresh = build.Codelet(scale.function)
    assert not fresh.is_made
    assert fresh.address == fresh.address != 0
    assert fresh.is_made
    assert repr(fresh) == "Codelet(scale)"


def test_call_works_on_its_range_only() -> None:
    x, y = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    parameters = np.array([x.ctypes.data, y.ctypes.data])
    scale(parameters.ctypes.data, 2, 5, 0)
    assert y.tolist() == [0, 0, 6, 9, 12, 0, 0, 0, 0, 0]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A cache that one process has filled, which tests do not change, and what the process printed."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, run_program(cache)


def test_second_process_finds_the_codelet_on_disk(first: tuple[Path, list[str]]) -> None:
    cache, first_printed = first
    second = run_program(cache)
    assert first_printed[:2] == ["1", "36"] and second[:2] == ["0", "36"]
    assert first_printed[2] == second[2] and (cache / "software-ipu" / second[2]).is_dir()
    assert first_printed[3] == "True" and second[3] == "False"  # machine code needs no compiler


def test_another_processor_has_another_folder(first: tuple[Path, list[str]], tmp_path: Path) -> None:
    cache, here = first
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    there = run_program(tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert there[:2] == ["1", "36"] and there[2] != here[2]


def test_cache_that_cannot_be_written_is_not_used(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")  # a file where the folder should be: not even root can write into it
    assert run_program(blocked)[:2] == ["1", "36"]
    assert blocked.read_text() == ""


def kept_files(cache: Path) -> list[Path]:
    return list((cache / "software-ipu").glob("codelets-*/scale*"))


def test_damaged_codelets_are_compiled_again(first: tuple[Path, list[str]], tmp_path: Path) -> None:
    shutil.copytree(first[0], tmp_path, dirs_exist_ok=True)
    (path,) = kept_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    assert run_program(tmp_path)[:2] == ["1", "36"]
    assert run_program(tmp_path)[:2] == ["0", "36"]


def test_two_cold_processes_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run_program, [tmp_path] * 2))
    assert [result[1] for result in results] == ["36"] * 2
    assert len(kept_files(tmp_path)) == 1 and run_program(tmp_path)[0] == "0"


def test_closures_are_told_apart_by_what_they_close_over() -> None:
    def scaling(factor: int) -> Callable[..., None]:
        def scale(parameters: int, lo: int, hi: int, scratch: int) -> None:
            store_i64(parameters, factor)

        return scale

    assert identity(scaling(2)) == identity(scaling(2)) != identity(scaling(3))
    helpers = [inner(scaling(factor)) for factor in (2, 2, 3)]
    same, equal, other = (identity((helper,)) for helper in helpers)
    assert same == equal != other


def test_change_of_any_source_changes_the_folder(tmp_path: Path) -> None:
    copy = tmp_path / "codelets"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    fingerprint = keys.fingerprint.__wrapped__
    before = fingerprint(copy)
    assert before == fingerprint(copy)
    (copy / "products" / "pack.py").chmod(stat.S_IRUSR | stat.S_IWUSR)
    (copy / "products" / "pack.py").write_text((copy / "products" / "pack.py").read_text() + "\n")
    assert fingerprint(copy) != before


@codelet
def round_trip(address: int, value: int, hi: int, result: int) -> None:
    memory.store_release(address, value)
    memory.pause()
    store_i64(result, memory.load_acquire(address))


@codelet
def narrow(address: int, lo: int, hi: int, result: int) -> None:
    memory.store_i8(address, -3)
    memory.store_i16(address + 2, -300)
    memory.store_i32(address + 4, -70000)
    store_i64(result, memory.load_i8(address))
    store_i64(result + 8, memory.load_i16(address + 2))
    store_i64(result + 16, memory.load_i32(address + 4))


@inner
def product(address: int) -> float:
    return load_f32(address) * load_f32(address + 4)


@codelet
def multiply(address: int, flushes: int, hi: int, result: int) -> None:
    before = memory.floating_point_state()
    if flushes:
        memory.set_floating_point_state(memory.flush_to_zero(before))
    memory.store_f32(result, product(address))
    memory.set_floating_point_state(before)


@codelet
def call(codelets: int, lo: int, hi: int, function: int) -> None:
    """Calls the codelet with the parameters in two words, and stores what the function returns behind them."""
    memory.call_code(load_i64(codelets), load_i64(codelets + 8), lo, hi, 0)
    store_i64(codelets + 16, memory.call_address(function, 1, 2, 3, 4, 5))


def test_memory_intrinsics() -> None:
    slot, result = np.zeros(1, np.int64), np.zeros(3, np.int64)
    round_trip(slot.ctypes.data, -5, 0, result.ctypes.data)
    assert result[0] == slot[0] == -5
    narrow(slot.ctypes.data, 0, 0, result.ctypes.data)
    assert result.tolist() == [-3, -300, -70000]


def test_calls_by_address() -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 42)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    parameters = np.array([x.ctypes.data, y.ctypes.data])
    codelets = np.array([scale.address, parameters.ctypes.data, 0])
    call(codelets.ctypes.data, 1, 3, address)
    assert codelets[2] == 42
    assert y.tolist() == [0, 3, 3, 0]


@pytest.mark.skipif(not (processor.X86 or processor.ARM), reason="the processor has no such mode that we know")
def test_denormals_are_flushed_only_in_between() -> None:
    factors, result = np.array([np.finfo(np.float32).tiny, 0.5], np.float32), np.zeros(1, np.float32)
    for flushes in (0, 1, 0):
        multiply(factors.ctypes.data, flushes, 0, result.ctypes.data)
        assert (result[0] == 0) == bool(flushes)
