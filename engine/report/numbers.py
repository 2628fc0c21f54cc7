"""Numbers formatted for readers."""

from __future__ import annotations

from math import ceil, log10


def cut(text: str, width: int) -> str:
    """Cut the middle out of a text longer than `width` letters: layers differ at the start, operations at the end."""
    front = width // 2
    return text if len(text) <= width else f"{text[:front]}…{text[1 + front - width :]}"


def count(value: float) -> str:
    """Format 1234567 as 1,234,567."""
    return signed(f"{value:,.0f}")


def signed(text: str) -> str:
    """The text with minus signs in place of hyphens."""
    return text.replace("-", "−")


def short(value: float) -> str:
    """Format 1234567 as 1.23 M."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= max(scale, 9999.5):
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2g}"


def size(value: float) -> str:
    """Bytes with three digits in B, kB (1000 B), MB or GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= scale:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:.0f} B" if value >= 10 or value == int(value) else f"{value:.1f} B"


def three_digits(value: float) -> str:
    """The value with three digits: 1.00, 12.3 or 123."""
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"


def duration(seconds: float) -> str:
    """Seconds with three digits in s, ms or µs."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def percent(share: float) -> str:
    """Format 0.123 as 12 %, with one decimal below 10 %."""
    value = 100 * share
    if value == 0 or abs(value) >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if abs(value) >= 0.05 else "under 0.1 %"


def nice_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20 ... that is at least `least`."""
    power = 10 ** max(0, ceil(log10(max(least, 1))) - 1)
    return next(part * power for part in (1, 2, 5, 10) if part * power >= least)
