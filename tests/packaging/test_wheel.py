"""The wheel holds the three packages and the hook; test_import_names.py tests its effects where it is installed."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.machine_code import installed_objects, sources
from engine.machine_code.given_objects import has_compiler
from tests.packaging.conftest import ROOT

MOST_BYTES = 10e6


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("ipu_hook.pth") == b"import _ipu_hook\n"
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "_ipu_hook.py",
        "_ipu_names.py",
        "engine",
        "ipu",
        "ipu_hook.pth",
        "keras_ext",
    }
    assert {"ipu/py.typed", "engine/py.typed", "keras_ext/py.typed", "ipu/config.py"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.explore
@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="compiles codelets")
def test_objects_of_usual_processors(build: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive for each processor and cache, of the sources that are beside it; the wheel stays small."""
    monkeypatch.setenv("SOFTWARE_IPU_COMPILE_AHEAD", "1")
    path = build(ROOT)
    with zipfile.ZipFile(path) as archive:
        found = [name for name in archive.namelist() if name.startswith("engine/data/objects/")]
    digests = map(sources.digest_at, installed_objects.SOURCES)
    digest = hashlib.sha256(b"".join(digests)).hexdigest()[:32]
    processors = installed_objects.PROCESSORS.items()
    names = {f"{level}-{size >> 10}K-{digest}.zip" for level, (_, _, caches) in processors for size in caches}
    assert set(found) == {f"engine/data/objects/{name}" for name in names}
    assert path.stat().st_size < MOST_BYTES
