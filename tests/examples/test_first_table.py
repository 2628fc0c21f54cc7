"""The first table of README.md: ranges of the ratios of docs/performance.md, by kind of model and processor."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
MACHINES = {"Zen 4": "(znver4,", "Zen 5": "(znver5,", "AVX2": "(znver5 with x86-64-v3", "Xeon": "matrix registers"}
"""Columns of the table, and what the headings of performance.md call these machines."""
KINDS = {
    "dense, small or tabular": ("mlp", "tabular", "vae"),
    "convolutional": ("lenet", "resnet20", "resnet50", "separable", "unet", "efficientnet"),
    "recurrent": ("bidirectional gru", "lstm", "seq2seq"),
    "text classification": ("text classifier",),
    "transformers and mixers": ("encoder, 2 layers", "encoder, 6 layers", "vision transformer", "mixer"),
    "wide dense layers": ("wide mlp",),
}
"""Workloads of each row; figures of float16 and of inference have other names."""


def ratios(machine: str) -> dict[str, list[float]]:
    """The column `times` beside Keras, by workload."""
    part = next(each for each in PERFORMANCE.split("\n### ") if machine in each.partition("\n")[0])
    found: dict[str, list[float]] = {}
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 5 and re.fullmatch(r"[\d.]+", cells[4].strip("*")):
            found.setdefault(cells[0], []).append(float(cells[4].strip("*")))
    return found


def shown(values: list[float]) -> str:
    low, high = (f"{each:.1f}" for each in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def test_ranges_are_those_of_the_races() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {cells[0]: cells[1:] for line in page.splitlines() if (cells := [c.strip() for c in line.split("|")[1:-1]])}
    by_machine = {name: ratios(heading) for name, heading in MACHINES.items()}
    assert all(len(each) > 8 for each in by_machine.values())
    for kind, workloads in KINDS.items():
        values = [[v for w in workloads for v in by_machine[machine].get(w, [])] for machine in MACHINES]
        assert rows[kind] == [shown(each) if each else "" for each in values]
    measured = {workload for kind in KINDS.values() for workload in kind}
    left_out = {workload for each in by_machine.values() for workload in each} - measured
    assert all(
        "float16" in each or each.startswith("predict") or each == "large embedding" for each in left_out - {""}
    ), left_out
