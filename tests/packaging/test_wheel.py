"""The wheel holds the three packages and the hook; test_import_names.py tests its effects where it is installed."""

from __future__ import annotations

import zipfile
from pathlib import Path


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
