"""The examples run, and the code of pages prints the printouts of the pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forking
from tests.examples.pages import pieces
from tests.exploring import sample

ROOT = forking.ROOT


def output_of(function: Callable[..., None], *arguments: str) -> str:
    """Output of a function in a new process; fails if it does."""
    status, output = forking.run(function, *arguments)
    assert status == 0, output
    return output


def output_of_program(name: str, *arguments: str) -> str:
    """Output of an example."""
    return output_of(forking.program, str(forking.ROOT / "examples" / name), *arguments)


def short_digits(*arguments: str) -> None:
    """The example of two models with one of them and fewer steps."""
    from examples import digits

    digits.REPEATS, digits.STEPS_PER_EXECUTION = 4, 10
    del digits.MODELS["CNN"]
    sys.argv = ["digits.py", *arguments]
    digits.main()


def two_sessions(folder: str) -> None:
    """The example of TensorFlow 1 twice, each time with more updates."""
    from examples import tensorflow1

    for updates in ("1000", "1500"):
        sys.argv = ["tensorflow1.py", "--checkpoints", folder, "--updates", updates]
        tensorflow1.main()


@pytest.mark.slow
@pytest.mark.parametrize("models", [["MLP"], pytest.param(["MLP", "CNN"], marks=pytest.mark.explore)])
def test_digits_ends_with_a_table(models: list[str]) -> None:
    pytest.importorskip("sklearn")
    arguments = ("--epochs", "1", "--rounds", "1")
    short = len(models) == 1
    printed = output_of(short_digits, *arguments) if short else output_of_program("digits.py", *arguments)
    rows = re.findall(r"^(MLP|CNN) +([\d.]+)% +([\d.]+)% +([\d,]+) +([\d,]+) +([\d.]+)x", printed, re.M)
    assert [row[0] for row in rows] == models, printed
    for _, ours, plain, our_rate, plain_rate, ratio in rows:
        # Chance is 10%; after an epoch of 180 steps both have learnt, and learnt the same.
        assert min(float(ours), float(plain)) > 70
        assert abs(float(ours) - float(plain)) < 5
        rates = [float(rate.replace(",", "")) for rate in (our_rate, plain_rate)]
        assert float(ratio) == pytest.approx(rates[0] / rates[1], rel=0.02, abs=0.06)


@pytest.mark.explore
def test_the_accelerated_model_stays_on_the_engine() -> None:
    printed = output_of_program("accelerate.py")
    assert re.findall(r"^(plain Keras|accelerated): [\d.]+ s an epoch$", printed, re.M) == [
        "plain Keras",
        "accelerated",
    ]
    assert printed.endswith("with plain Keras after all: []\n")


@pytest.mark.explore
def test_a_session_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Runs in one process; killed ones: tests/graphs/programs/test_preempted.py."""
    printed = output_of(two_sessions, str(tmp_path))
    rows = re.findall(r"^update +(\d+): loss ([\d.]+), accuracy +([\d.]+)%$", printed, re.M)
    assert [int(row[0]) for row in rows] == [500, 1000, 1500], printed
    assert float(rows[-1][2]) > 80  # of ten classes


@pytest.mark.explore
def test_an_estimator_learns(tmp_path: Path) -> None:
    printed = output_of_program("estimator.py", "--folder", str(tmp_path), "--steps", "1000")
    ((step, accuracy),) = re.findall(r"^step (\d+): loss [\d.]+, accuracy +([\d.]+)%$", printed, re.M)
    assert int(step) == 1000 and float(accuracy) > 80  # of ten classes
    assert (tmp_path / "model.ckpt-1000.index").exists()


TESTED_ELSEWHERE = ("custom_vertices", "floating_point", "host_embeddings", "host_functions", "works_with")
"""Pages with tests of their own."""


@pytest.mark.slow
def test_pages_are_true() -> None:
    pages = [each for each in sorted((ROOT / "docs").glob("*.md")) if "```python" in each.read_text()]
    assert {*TESTED_ELSEWHERE, "tour"} < {each.stem for each in pages}
    docs = [str(each) for each in pages if each.stem not in TESTED_ELSEWHERE]
    output_of(forking.module, "tests.examples.pages", "README.md", *sample(docs, 2))


def test_false_printouts_are_put_right_and_others_let_be() -> None:
    page = "```python\na = 1\nprint(a)\n```\n\n```text\n{}\n```\n\nThen:\n\n```python\nprint(a + 1)\n```\n"
    assert "".join(pieces(page.format("2"), "page")) == page.format("1")
    assert "".join(pieces(page.format("1"), "page")) == page.format("1")


LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/t*/*.py"), *ROOT.glob("benchmarks/*.md")],
)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_the_picture_shows_the_page() -> None:
    from benchmarks.page import HEADLINES, headlined, written
    from benchmarks.picture import PAGE, PICTURE, rows, svg

    page = PAGE.read_text()
    assert page == written(page), "python -m benchmarks.page writes what was kept"
    assert PICTURE.read_text() == svg(page), "python -m benchmarks.page draws it again"
    for path in HEADLINES:
        assert path.read_text() == headlined(path.read_text(), page), "python -m benchmarks.page writes the headlines"
    assert len(rows(page)) > 8 and all(ratio > 0 for _, ratio in rows(page))
