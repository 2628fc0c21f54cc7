"""Object code of an installation: used where sources, processor and cache are those of its compilation, else not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.codelets.host import rows
from engine.codelets.language.build import Codelet, building, objects_of
from engine.codelets.language.record import block as words_of
from engine.machine_code import installed_objects
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.caches import LARGE
from tests.interrupting import HANGS_SECONDS

AMD64, AARCH64 = 62, 183
"""Numbers of machines in ELF files."""
PROGRAM = """
from pathlib import Path
import sys
from engine.codelets.host.rows import outfeed
from engine.codelets.language.build import objects_of
from engine.machine_code import installed_objects
code = objects_of([outfeed])
print(installed_objects.write(Path(sys.argv[1]), code).name, *(each[18] for each in code.values()))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of archives, empty as the cache is."""
    if installed_objects.level_of_processor() is None:
        pytest.skip("no objects are made for this processor")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(installed_objects, "FOLDER", tmp_path)
    installed_objects._archive.cache_clear()
    yield tmp_path
    installed_objects._archive.cache_clear()


def compiled_by_using(codelet: Codelet) -> list[str]:
    """Names of codelets that are compiled for a row to be copied, which is checked, by `outfeed` or its equal."""
    compiled: list[str] = []
    block = rows.new_feed_block()
    source, target = np.random.default_rng(3).normal(size=11).astype(np.float32), np.zeros(11, np.float32)
    rows.point_feed(block, target)
    parameters = rows.encode_outfeed(block.ctypes.data, source.ctypes.data, source.nbytes)[0]
    words, scratch = words_of(parameters).words, np.zeros(RESERVED_SCRATCH, np.int8)
    with building(compiled.append):
        codelet(words.ctypes.data, 0, 1, scratch.ctypes.data)
    assert np.array_equal(target, source)
    return compiled


def other_outfeed() -> Codelet:
    """A codelet with the code of `outfeed` that this process has not loaded."""
    return Codelet(rows.outfeed.function, "outfeed")


def archived(folder: Path) -> Path:
    """The archive of `outfeed` for this processor. Its objects are not in the cache."""
    code = objects_of([other_outfeed()])
    for each in (folder / "software-ipu").rglob("*.o"):
        each.unlink()
    return written(folder, code)


def written(folder: Path, objects: dict[str, bytes]) -> Path:
    """An archive that this process has not looked for."""
    path = installed_objects.write(folder, objects)
    installed_objects._archive.cache_clear()
    return path


def test_objects_of_an_archive_are_not_compiled(folder: Path) -> None:
    archived(folder)
    assert compiled_by_using(other_outfeed()) == []
    assert not list((folder / "software-ipu").rglob("*.o"))


def test_an_archive_without_the_object_is_no_error(folder: Path) -> None:
    written(folder, {"another-0.o": b"\x7fELF"})
    assert compiled_by_using(other_outfeed()) == ["outfeed"]


@pytest.mark.parametrize("fault", ["sources", "cache", "processor", "torn", "altered"])
def test_other_archives_are_not_used(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archived(folder)
    if fault == "sources":
        monkeypatch.setattr(installed_objects.sources, "digest_at", lambda position: bytes(32))
    elif fault == "cache":
        monkeypatch.setattr(installed_objects, "second_level", lambda: 3 << 16)
    elif fault == "processor":
        monkeypatch.setattr(installed_objects, "target", lambda: ("generic", frozenset()))
    else:
        data = path.read_bytes()
        middle = len(data) // 3
        path.write_bytes(data[:-9] if fault == "torn" else data[:middle] + bytes(16) + data[middle + 16 :])
    if fault == "sources":  # the cache's own names would change, too
        assert installed_objects.find(other_outfeed().path) is None
    else:
        assert compiled_by_using(other_outfeed()) == ["outfeed"]


@pytest.mark.parametrize("level", installed_objects.PROCESSORS)
def test_each_level_is_compiled_on_any_machine(level: str, folder: Path) -> None:
    name, features, caches = installed_objects.PROCESSORS[level]
    chosen = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "SOFTWARE_IPU_CACHE_BYTES": str(caches[0])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, **chosen, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found, machine = done.stdout.split()
    assert found.startswith(f"{level}-{caches[0] >> 10}K-") and found.endswith(".zip")
    assert int(machine) == (AARCH64 if level == "aarch64" else AMD64)


def test_caches_above_the_largest_share_an_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for size in (LARGE, 2 * LARGE, 3 * LARGE):
        monkeypatch.setattr(installed_objects, "second_level", lambda size=size: size)
        names.add(installed_objects.file_name("x86-64-v3"))
    assert len(names) == 1


@pytest.mark.parametrize(("bf16", "expected"), [(False, "x86-64-v4"), (True, "x86-64-v4-bf16")])
def test_processors_that_round_to_bf16_have_objects_of_their_own(
    bf16: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = frozenset(each.removeprefix("+") for each in installed_objects.PROCESSORS[expected][1].split(","))
    for name, value in {"lanes": 16, "rounds_to_bf16": bf16, "target": ("znver4", features)}.items():
        monkeypatch.setattr(installed_objects, name, lambda value=value: value)
    monkeypatch.setattr(installed_objects, "X86", True)
    assert installed_objects.level_of_processor() == expected
