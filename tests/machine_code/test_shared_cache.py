"""Ten processes of two versions of the package that start at once with an empty cache share it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine import cache_directory
from engine.files.executable_file import write_executable
from tests.files.programs import classifier, expected
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parents[2]
PROGRAM = """
import logging, sys
import numpy as np
logging.basicConfig(level=logging.WARNING)
sys.path.insert(0, sys.argv[1])
import engine
assert engine.__file__.startswith(sys.argv[1]), engine.__file__
sys.stdin.readline()
for path in sys.argv[3:]:
    x = np.load(path + ".npy")
    np.save(sys.argv[2] + path.rpartition("/")[2], engine.load(path).run([x])[0])
"""


@pytest.mark.explore
@pytest.mark.skipif(os.name != "posix", reason="helpers are started on POSIX alone")
def test_ten_processes_of_two_versions_share_an_empty_cache(tmp_path: Path) -> None:
    other, cache = tmp_path / "other", tmp_path / "cache"
    shutil.copytree(ROOT / "engine", other / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "engine" / "emit" / "codelet.py").open("a") as file:
        file.write("# another version\n")
    with (other / "engine" / "codelets" / "language" / "element.py").open("a") as file:
        file.write("# another version\n")
    programs = []
    for batch in (3, 17):
        programs.append(str(tmp_path / f"{batch}.poplar_exec"))
        write_executable(programs[-1], classifier(batch))
        np.save(programs[-1] + ".npy", np.random.default_rng(batch).normal(size=(batch, 5)).astype(np.float32))
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(other if k % 2 else ROOT), str(tmp_path / f"{k}-"), *programs],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=tmp_path,
        )
        for k in range(10)
    ]
    for each in processes:
        assert each.stdin is not None
        each.stdin.write(b"\n")
        each.stdin.flush()
    for each in processes:
        _, errors = each.communicate(timeout=HANGS_SECONDS)
        assert each.returncode == 0 and not errors, errors.decode()[-2000:]
    for path in programs:
        x = np.load(path + ".npy")
        results = [np.load(tmp_path / f"{k}-{Path(path).name}.npy") for k in range(10)]
        np.testing.assert_allclose(results[0], expected(classifier(len(x)), x)["scores"], rtol=1e-5)
        assert all(each.tobytes() == results[0].tobytes() for each in results)
    objects = [each for each in (cache / "software-ipu").rglob("*") if each.is_file() and each.suffix == ".o"]
    assert len({each.parent for each in objects}) >= 2, "each version has folders of its own"
    for each in objects:
        content = each.read_bytes()
        rest = content[cache_directory.DIGEST_BYTES :]
        assert cache_directory._digest(each, rest) == content[: cache_directory.DIGEST_BYTES], "no file is torn"
