"""The page in a browser: nothing on its console, charts drawn by its scripts, and whole without them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS
from tests.report.samples import report, too_large

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"),
)
DRAWN = 'class="drawing vega-embed'
"""What stands where a script has drawn a chart."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, made in (("fits", report()), ("fails", too_large())):
        (folder / f"{name}.html").write_text(made.html(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in ("fits", "fails")}


def opened(page: Path, section: str, profile: Path, *options: str) -> tuple[str, list[str]]:
    """The document after its scripts have run, and the lines of the console."""
    assert BROWSER is not None
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", "--virtual-time-budget=8000", *options, "--dump-dom"]
    done = subprocess.run(
        [*command, f"{page.as_uri()}#{section}"], capture_output=True, text=True, timeout=HANGS_SECONDS, check=True
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("name", ["fits", "fails"])
@pytest.mark.parametrize("section", ["verdict", "memory", "liveness", "trace", "operations"])
def test_no_errors_and_charts_that_answer(pages: dict[str, Path], name: str, section: str, tmp_path: Path) -> None:
    document, console = opened(pages[name], section, tmp_path)
    assert not console
    assert 'data-ready="yes"' in document
    charts = {"verdict": 0, "memory": 2, "liveness": 2, "trace": 2, "operations": 1}[section]
    assert document.count(DRAWN) == charts
    assert "Showing " in document


def test_charts_are_as_wide_as_a_narrow_page(pages: dict[str, Path], tmp_path: Path) -> None:
    wide, _ = opened(pages["fits"], "memory", tmp_path, "--window-size=1280,900")
    narrow, _ = opened(pages["fits"], "memory", tmp_path, "--window-size=500,900")
    assert drawn_width(narrow) < 500 < drawn_width(wide)


def drawn_width(document: str) -> float:
    """Of the first chart that a script has drawn."""
    picture = document.partition(DRAWN)[2].partition("<svg")[2].partition(">")[0]
    return float(picture.partition(' width="')[2].partition('"')[0])
