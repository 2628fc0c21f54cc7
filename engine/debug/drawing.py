"""Drawings of exchanges between tiles, as SVG for notebooks."""

from __future__ import annotations

from html import escape

import numpy as np

WIDTH, HEIGHT, TOP, RADIUS = 720, 190, 34, 13
"""Pixels of a drawing, of what is above the senders, and of a tile."""
WIDEST, THINNEST = 9.0, 0.7
"""Pixels of the lines of most bytes and of fewest."""
MOST_TILES = 32
"""Most tiles whose numbers can be read; drawings of more have lines alone."""


def exchange_drawing(moved: np.ndarray, title: str) -> str:
    """An SVG element with the tiles that send above and those that receive below.

    Args:
        moved: bytes from tile to tile, int64 [sender, receiver].
        title: text above, such as the name of the compute set.
    """
    tiles, most = len(moved), max(1, int(moved.max(initial=0)))
    places = [round(WIDTH * (tile + 0.5) / tiles, 1) for tile in range(tiles)]
    radius = min(RADIUS, WIDTH / tiles / 2 - 1)
    upper, lower = TOP + RADIUS + 16, HEIGHT - RADIUS - 20
    lines = [
        f'<line x1="{places[sender]}" y1="{upper + radius:g}" x2="{places[receiver]}" y2="{lower - radius:g}" '
        f'stroke="#3f6fb0" stroke-opacity="0.75" '
        f'stroke-width="{max(THINNEST, WIDEST * moved[sender, receiver] / most):.1f}">'
        f"<title>tile {sender} to tile {receiver}: {moved[sender, receiver]:,} bytes</title></line>"
        for sender, receiver in zip(*np.nonzero(moved), strict=True)
    ]
    tops = _row(places, upper, radius, moved.sum(axis=1), above=True)
    bottoms = _row(places, lower, radius, moved.sum(axis=0), above=False)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" style="max-width: 100%; display: block" role="img" '
        f'font-family="sans-serif" fill="currentColor" aria-label="{escape(title)}">'
        f'<text x="0" y="14" font-size="13">{escape(title)}</text>{"".join([*lines, *tops, *bottoms])}</svg>'
    )


def _row(places: list[float], y: float, radius: float, sizes: np.ndarray, *, above: bool) -> list[str]:
    """The tiles of a row with their numbers, and the bytes that each sends or receives."""
    if len(places) > MOST_TILES:
        return []
    found = []
    for tile, (x, size) in enumerate(zip(places, sizes.tolist(), strict=True)):
        idle = "" if size else ' opacity="0.35"'
        label = y - radius - 5 if above else y + radius + 15
        found.append(
            f'<g{idle} text-anchor="middle"><circle cx="{x}" cy="{y:g}" r="{radius:g}" fill="none" '
            f'stroke="currentColor"/><text x="{x}" y="{y + 4:g}" font-size="11">{tile}</text>'
            f'<text x="{x}" y="{label:g}" font-size="10">{_size(size) if size else ""}</text></g>'
        )
    return found


def _size(count: int) -> str:
    """Bytes in at most five letters."""
    return f"{count} B" if count < 1000 else f"{count / 1e3:.3g} kB" if count < 1e6 else f"{count / 1e6:.3g} MB"
