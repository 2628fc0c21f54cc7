"""Draw the ratios of docs/performance.md for the README: `python -m benchmarks.page` writes docs/ratios.svg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
PAGE, PICTURE = ROOT / "docs" / "performance.md", ROOT / "docs" / "ratios.svg"
ROW = re.compile(r"^\| (.+?) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| \**([\d.]+)\** \|", re.M)
WIDTH, NAMES, BAR, GAP, TOP, BOTTOM = 760, 270, 20, 8, 66, 34
LONGEST = 12.0
"""The ratio at which bars are cut off: beside a bar of a hundred the others would be invisible."""
STYLE = (
    "text{font:13px Helvetica,Arial,sans-serif;fill:#22272E}.title{font-size:16px;font-weight:600}"
    ".name{text-anchor:end}.ratio{font-weight:600}.small{font-size:11px;fill:#5B6470}"
    ".ours{fill:#2F7ED8}.keras{stroke:#C8591C;stroke-width:2}"
    "@media (prefers-color-scheme:dark){text{fill:#E6EDF3}.small{fill:#9DA7B3}.ours{fill:#5AA2F0}"
    ".keras{stroke:#F2A24B}}"
)
METHOD = (
    "Medians of interleaved rounds; Keras is the faster of jit_compile=True and False, with the same "
    "steps_per_execution."
)


def rows(page: str) -> list[tuple[str, float]]:
    """Workloads and ratios to Keras of the longest table of races, the newest of equally long ones."""
    return max((found for _, found in _tables(page)), key=len)


def processor(page: str) -> str:
    """The processor of the page's longest table of races."""
    return max(_tables(page), key=lambda each: len(each[1]))[0]


def _tables(page: str) -> list[tuple[str, list[tuple[str, float]]]]:
    made = []
    for part in page.split("\n### ")[1:]:
        races = part.partition("\n| workload | batch |")[2].split("\n\n")[0]
        found = [(f"{name}, batch {batch}", float(ratio)) for name, batch, _, _, ratio in ROW.findall(races)]
        made.append((part.split("\n")[0], found))
    return made


def svg(page: str) -> str:
    """The picture of a page, transparent, with colours for light and dark surroundings."""
    table = rows(page)
    height = TOP + len(table) * (BAR + GAP) + BOTTOM
    scale = (WIDTH - NAMES - 70) / min(LONGEST, max(ratio for _, ratio in table))
    keras = NAMES + scale
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>Steps per second beside Keras on the same CPU</title>",
            f"<style>{STYLE}</style>",
            '<text class="title" x="12" y="24">Steps per second, as multiples of Keras on the same CPU</text>',
            f'<text class="small" x="12" y="42">{escape(processor(page))}</text>',
            f'<text x="{keras - 4:.0f}" y="{TOP - 12}" class="small name">Keras, 1x</text>',
            *_bars(table, scale),
            f'<line class="keras" x1="{keras:.0f}" y1="{TOP - 8}" x2="{keras:.0f}" y2="{height - BOTTOM}"/>',
            f'<text class="small" x="12" y="{height - 10}">{METHOD}</text>',
            "</svg>\n",
        ]
    )


def _bars(table: list[tuple[str, float]], scale: float) -> Iterator[str]:
    for number, (name, ratio) in enumerate(table):
        y, length = TOP + number * (BAR + GAP), min(ratio, LONGEST) * scale
        yield f'<text class="name" x="{NAMES - 10}" y="{y + 15}">{escape(name)}</text>'
        yield f'<rect class="ours" x="{NAMES}" y="{y}" width="{length:.0f}" height="{BAR}" rx="3"/>'
        if ratio > LONGEST:
            x = NAMES + length - 8
            yield f'<text class="small name" x="{x:.0f}" y="{y + 14}" style="fill:#fff">longer than drawn</text>'
        yield f'<text class="ratio" x="{NAMES + length + 8:.0f}" y="{y + 15}">{ratio:.1f}x</text>'
