"""The documentation as a site: strict, complete, and without anything loaded from elsewhere."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ipu
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent
LOADED = re.compile(r"""<(?:script|img|link|iframe)[^>]*(?:src|href)="(https?://[^"]*)"[^>]*""")


@pytest.mark.explore
def test_site_is_built_strictly(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {
        "index.html",
        "accelerate.html",
        "reference/ipu.utils.html",
        "reference/keras.ipu.layers.html",
    } <= pages.keys()
    assert [(page, found) for page, text in pages.items() for found in LOADED.findall(text)] == []
    missing = [
        f"{page}: {name}"
        for page, names in {
            "ipu.utils": dir(ipu.utils),
            "ipu.pipelining_ops": dir(ipu.pipelining_ops),
            "keras.ipu.layers": dir(ipu.keras.layers),
        }.items()
        for name in names
        if f'id="{name.lower()}"' not in pages[f"reference/{page}.html"]
    ]
    assert missing == []
    assert "Raises" in html.unescape(pages["reference/ipu.pipelining_ops.html"])
    assert (tmp_path / "search" / "search_index.js").stat().st_size > 100_000
