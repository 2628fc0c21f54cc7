"""The examples run, and the pages' code prints what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.pages import pieces
from tests.exploring import sample
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent


def output_of(*command: str) -> str:
    """What a new Python process prints, started in the project's folder; fails if it does."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SHORT = """
from examples import digits
digits.REPEATS, digits.STEPS_PER_EXECUTION = 4, 10
del digits.MODELS["CNN"]
digits.main()
"""
TWICE = """
import sys
from examples import tensorflow1
for updates in ("1000", "1500"):
    sys.argv[4:] = [updates]
    tensorflow1.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "models"),
    [
        (("-c", SHORT), ["MLP"]),
        pytest.param(("examples/digits.py",), ["MLP", "CNN"], marks=pytest.mark.explore),
    ],
)
def test_digits_ends_with_a_table(program: tuple[str, ...], models: list[str]) -> None:
    pytest.importorskip("sklearn")
    printed = output_of(*program, "--epochs", "1", "--rounds", "1")
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
    printed = output_of("examples/accelerate.py")
    assert re.findall(r"^(plain Keras|accelerated): [\d.]+ s an epoch$", printed, re.M) == [
        "plain Keras",
        "accelerated",
    ]
    assert printed.endswith("with plain Keras after all: []\n")


@pytest.mark.explore
def test_a_session_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """In one process, which imports TensorFlow once; killed ones: tests/graphs/programs/test_preempted.py."""
    printed = output_of("-c", TWICE, "--checkpoints", str(tmp_path), "--updates")
    rows = re.findall(r"^update +(\d+): loss ([\d.]+), accuracy +([\d.]+)%$", printed, re.M)
    assert [int(row[0]) for row in rows] == [500, 1000, 1500], printed
    assert float(rows[-1][2]) > 80  # of ten classes


@pytest.mark.explore
def test_an_estimator_learns(tmp_path: Path) -> None:
    printed = output_of("examples/estimator.py", "--folder", str(tmp_path), "--steps", "1000")
    ((step, accuracy),) = re.findall(r"^step (\d+): loss [\d.]+, accuracy +([\d.]+)%$", printed, re.M)
    assert int(step) == 1000 and float(accuracy) > 80  # of ten classes
    assert (tmp_path / "model.ckpt-1000.index").exists()


@pytest.mark.slow
def test_pages_are_true() -> None:
    docs = [
        f"docs/{name}.md"
        for name in ("index", "accelerate", "tour", "supported_ops", "debugging", "tensorflow1", "layers", "estimators")
    ]
    docs += [f"docs/{name}.md" for name in ("loops", "replicas", "configuration", "mixed_precision")]
    output_of("-m", "tests.examples.pages", "README.md", *sample(docs, 4))


def test_false_printouts_are_put_right_and_others_let_be() -> None:
    page = "```python\na = 1\nprint(a)\n```\n\n```text\n{}\n```\n\nThen:\n\n```python\nprint(a + 1)\n```\n"
    assert "".join(pieces(page.format("2"), "page")) == page.format("1")
    assert "".join(pieces(page.format("1"), "page")) == page.format("1")


LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_the_picture_shows_the_page() -> None:
    from benchmarks.picture import PAGE, PICTURE, rows, svg

    page = PAGE.read_text()
    assert PICTURE.read_text() == svg(page), "python -m benchmarks.picture draws it again"
    assert len(rows(page)) > 8 and all(ratio > 0 for _, ratio in rows(page))
