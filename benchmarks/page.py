"""Writes docs/performance.md's tables, a section for each processor in `benchmarks/kept`, the picture and headlines.

Run `python -m benchmarks.page` after `python -m benchmarks --keep` and `python -m benchmarks.inference --keep`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figures
from benchmarks.picture import PAGE, PICTURE, rows, svg
from benchmarks.workloads import WORKLOADS
from engine.whole_files import write_all

RIVALS = {"Keras": "keras", "JAX": "jax", "PyTorch": "torch"}
RUNTIMES = {"TensorFlow": "tensorflow", "ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}
GENERATED = re.compile(r"(?<=<!-- python -m benchmarks\.page -->\n).*?(?=<!-- end -->)", re.S)
HEADLINE = re.compile(
    r"[\d.]+( times as fast as with Keras itself.*?geometric mean of \[)\d+(\s+workloads\]\([^)]*\), which run )"
    r"[\d.]+ to \d+(?= times)",
    re.S,
)
HEADLINES = (PAGE,)
"""The pages whose headline has the ratios to Keras: their geometric mean, their number, the least and the largest."""


def best(ways: dict[str, Any], rival: str, measured: str) -> float | None:
    """The least milliseconds of the ways of a rival; None if the rival has no way."""
    return min((each[measured] for way, each in ways.items() if way.split(",")[0] == rival), default=None)


def compared(ways: dict[str, Any], rivals: dict[str, str], measured: str) -> Iterator[tuple[str, str]]:
    """The best milliseconds of each rival, and their multiple of ours, in bold if the rival is faster."""
    ours = ways["ipu"][measured]
    for rival in rivals.values():
        found = best(ways, rival, measured)
        times = "" if found is None else f"{found / ours:.2f}"
        yield ("", "") if found is None else (digits(found), times if found >= ours else f"**{times}**")


def digits(milliseconds: float) -> str:
    return f"{milliseconds:.3f}" if milliseconds < 10 else f"{milliseconds:.1f}"


def table(headings: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|---" * len(headings) + "|", *lines[1:]])


def races(measured: dict[str, Any], bounds: dict[str, Any]) -> str:
    """The table of training steps and predictions, with each rival's best way, and `at most` if bounds are known."""
    at_most = ["at most"] if bounds else []
    headings = ["workload", "batch", "ours", "Keras", "times", *at_most, "promised", "JAX", "times", "PyTorch", "times"]
    rows = []
    for name, workload in WORKLOADS.items():
        if name not in measured:
            continue
        keras, *others = compared(measured[name]["ways"], RIVALS, "step")
        promise = f"{workload.least_ratio:g}"
        kept = keras[1] and float(keras[1].strip("*")) >= workload.least_ratio
        ours = digits(measured[name]["ways"]["ipu"]["step"])
        title = name.replace(f", batch {workload.batch}", "")
        reachable = [most(best(measured[name]["ways"], "keras", "step"), bounds.get(name))] if bounds else []
        rows.append([title, str(workload.batch), ours, *keras, *reachable, promise if kept else f"**{promise}**"])
        rows[-1] += [cell for pair in others for cell in pair]
    return table(headings, rows)


def most(keras: float | None, bound: dict[str, float] | None) -> str:
    """The multiple of Keras' speed, `keras` milliseconds, of a step of only multiply-adds at the processor's peak."""
    return "" if keras is None or bound is None else f"{keras * bound['peak'] / bound['gflop'] / 1e3:.1f}"


def inference(measured: dict[str, Any]) -> str:
    """The table of calls of exported models."""
    headings = ["model", "batch", "ours", *(each for name in RUNTIMES for each in (name, "times")), "samples/s"]
    rows = []
    for name, found in measured.items():
        model, batch = name.rsplit(", batch ", 1)
        ours = found["ways"]["ipu"]["ms"]
        cells = [cell for pair in compared(found["ways"], RUNTIMES, "ms") for cell in pair]
        rows.append([model, batch, digits(ours), *cells, f"{1e3 * int(batch) / ours:.0f}"])
    return table(headings, rows)


def section(figures: Figures) -> str:
    """The tables of one processor."""
    days = " to ".join(dict.fromkeys([figures.days()[0], figures.days()[-1]]))
    parts = [f"### {figures.processor}", f"Measured {days}, with {', '.join(figures.versions())}."]
    if found := figures.measured.get("races"):
        parts.append(races(found, figures.measured.get("bounds", {})))
    if found := figures.measured.get("inference"):
        parts.append(inference(found))
    if barriers := figures.barriers():
        measured, nanoseconds = len(barriers) // 2, f"{min(barriers):.0f} to {max(barriers):.0f} ns"
        races_measured = f"{'one' if measured == 1 else measured} of these races"
        parts.append(f"An empty barrier took {nanoseconds} before and after {races_measured}.")
    return "\n\n".join(parts) + "\n\n"


def written(page: str) -> str:
    """The page with the tables of all stored figures."""
    tables = "\n" + "".join(section(each) for each in Figures.kept())
    return GENERATED.sub(lambda _: tables, page)


def headlined(text: str, performance: str) -> str:
    """Put the figures of the longest table of races of the page `performance` into a page's headline."""
    ratios = [ratio for _, ratio in rows(performance)]
    mean = f"{statistics.geometric_mean(ratios):.1f}"
    span = f"{min(ratios):.1f} to {int(max(ratios))}"
    made, count = HEADLINE.subn(lambda found: f"{mean}{found[1]}{len(ratios)}{found[2]}{span}", text)
    assert count == 1, "Expected one headline in each page."
    return made


def main() -> None:
    """Writes the page, the picture and the headlines."""
    page = written(PAGE.read_text())
    headlines = {path: headlined(page if path == PAGE else path.read_text(), page) for path in HEADLINES}
    write_all({**headlines, PICTURE: svg(page)})


if __name__ == "__main__":
    main()
