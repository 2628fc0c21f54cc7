"""The account as a table for a reader who meets the chip for the first time."""

from __future__ import annotations

from textwrap import wrap

from engine.profile.account import Account
from engine.profile.validation import whole_models, worst_errors

WIDTH = 88
BAR = 30
SEVERAL_IPUS = "sync between IPUs"


def summary(account: Account) -> str:
    """About twenty lines, at most 88 characters wide: chip, memory, cycles, time, costliest parts, error."""
    lines = [_chip(account), *_memory(account), *_cycles(account), _time(account), *_costliest(account)]
    return "\n".join([*lines, *_honesty(account)])


def _chip(account: Account) -> str:
    target = account.target
    chips = f"{account.replicas} replicas, each" if account.replicas > 1 else "one IPU,"
    return _cut(
        f"One step on {target.title} ({target.name}): {chips} {target.tiles:,} tiles, {target.clock_hz / 1e9:.2f} GHz"
    )


def _memory(account: Account) -> list[str]:
    memory, room = account.memory, account.target.bytes_per_tile
    share = memory.peak_fullest / room
    verdict = "fits" if account.fits else f"DOES NOT FIT, {memory.peak_fullest - room:,} bytes over"
    where = account.costs[memory.peak_at].label if account.costs else "the start"
    largest = sorted(memory.always_live.items(), key=lambda item: -item[1])[:2]
    kinds = ", ".join(f"{kind} {_bytes(size)}" for kind, size in largest if size)
    return [
        f"Memory: {verdict}; fullest tile at {share:.1%} of {room:,} bytes",
        f"  {'bytes per tile':<17}{'mean':>12}{'fullest':>12}",
        _cut(f"  {'always live':<17}{memory.always_live_mean:>12,.0f}{memory.always_live_fullest:>12,}  {kinds}"),
        _cut(f"  {'peak':<17}{memory.peak_mean:>12,.0f}{memory.peak_fullest:>12,}  at {where}"),
    ]


def _cycles(account: Account) -> list[str]:
    lines = [f"Cycles per step: {account.cycles:,} on the chip in {len(account.costs)} compute sets"]
    for part, share in account.shares.items():
        bar = "#" * round(share * BAR)
        lines.append(f"  {part:<17}{getattr(account, part):>12,}{share:>12.0%}  {bar}".rstrip())
    fed, returned = account.host_bytes
    return [*lines, f"  {'host transfer':<17}{account.host:>12,}{'':>12}  {_bytes(fed)} in, {_bytes(returned)} out"]


def _time(account: Account) -> str:
    return (
        f"Time per step: {_seconds(account.seconds_per_step)} with host transfer; "
        f"{account.steps_per_second:,.0f} steps/s, {account.samples_per_second:,.0f} samples/s"
    )


def _costliest(account: Account) -> list[str]:
    top = account.top(5)
    if not top:
        return []
    lines = [f"{'Costliest':<50}{'cycles':>12}{'share':>8}"]
    for label, number, cycles in top:
        times = f" (x{number})" if number > 1 else ""
        name = _cut(label, 47 - len(times)) + times
        lines.append(f"  {name:<48}{cycles:>12,}{cycles / max(1, account.cycles):>8.0%}")
    return lines


def _honesty(account: Account) -> list[str]:
    """What the errors against published measurements are, and what nobody has measured."""
    worst = worst_errors()
    shown = {g: e for g, e in worst.items() if g != SEVERAL_IPUS or account.replicas > 1}
    named = [f"{g} {e:+.0%}" if abs(e) >= 0.005 else f"{g} under 1%" for g, e in shown.items()]
    lines = _wrapped("Estimated, not measured. Largest errors against published figures: " + ", ".join(named) + ".")
    bounds = ", ".join(f"{row['name']} within {row['tolerance']:.0%} ({row['caveat']})" for row in whole_models())
    rest = f"Whole models: {bounds}, others unchecked. Code and vertex state are not counted."
    if account.unknown_loops:
        loops = "1 loop" if account.unknown_loops == 1 else f"{account.unknown_loops} loops"
        rest += f" Unknown trip count, counted once: {loops}."
    if account.assumed:
        rest += f" Rates assumed for: {', '.join(account.assumed)}."
    return [*lines, *_wrapped(rest)]


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH)
