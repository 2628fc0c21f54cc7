"""Plot the ratios of stored runs: `pytest benchmarks --benchmark-autosave`, then `python -m benchmarks.history`."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

STORED = Path(".benchmarks")


def ratios(folder: Path, against: str) -> dict[str, list[tuple[str, float]]]:
    """The ratio of each workload in each stored run: (date and commit, ratio), the oldest first."""
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for file in sorted(folder.rglob("*.json"), key=lambda each: json.loads(each.read_text())["datetime"]):
        run = json.loads(file.read_text())
        label = f"{run['datetime'][:10]}\n{run['commit_info']['id'][:7]}"
        for benchmark in run["benchmarks"]:
            value = benchmark["extra_info"].get(f"ratio to {against}")
            if value is not None:
                found[benchmark["param"]].append((label, value))
    return found


def main() -> None:
    """Write the plot to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.history", description="Plots the ratios of stored benchmark runs."
    )
    parser.add_argument("--against", default="keras", choices=("keras", "jax", "torch"))
    parser.add_argument("--to", default="history.png", help="the picture to write")
    options = parser.parse_args()
    found = ratios(STORED, options.against)
    if not found:
        parser.error(f"Expected stored runs in {STORED}. Received none: run pytest benchmarks --benchmark-autosave.")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import StrMethodFormatter

    figure, axes = plt.subplots(figsize=(10, 6), layout="constrained")
    axes.set_prop_cycle(color=plt.colormaps["tab20"].colors)
    for name, points in sorted(found.items(), key=lambda item: -item[1][-1][1]):
        axes.plot([label for label, _ in points], [value for _, value in points], marker="o", label=name)
    axes.axhline(1.0, color="gray", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylabel(f"times as fast as {options.against}")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figure.savefig(options.to)
    print(f"wrote {options.to}")


if __name__ == "__main__":
    main()
