"""The report as an object: built from a program, read from a file, written in four formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import InvalidFile
from engine.files.container import refuse_constant
from engine.private_files import read_regular
from engine.profile.levers import Lever, levers
from engine.profile.links import gradient_bytes
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.program.program import Program
from engine.report.data import FORMAT, VERSION, Feeding, Subject, report_data
from engine.report.notebook import pictures
from engine.report.page import page, unpacked
from engine.report.perfetto import trace
from engine.report.text import text, verdicts_text
from engine.report.verdicts import CHIPS, on_other_chips
from engine.shown import Shown, preformatted
from engine.target import Target
from engine.whole_files import write_all

SCHEMA = Path(__file__).parent / "schema.json"
MOST_BYTES = 1 << 28
"""Most bytes of a page or a JSON file to read. Reports of ResNet-50 have less than 2 MB."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report(Shown):
    """The estimate of a program on a chip. `data` is plain data; docs/report.md describes its keys."""

    data: dict[str, Any]

    @property
    def fits(self) -> bool:
        """Whether the program fits on the configured chip."""
        return bool(self.data["fits"])

    @property
    def cycles(self) -> dict[str, Any]:
        """Tile clock cycles of one step: compute, exchange, sync, host, total, and the relative error."""
        return dict(self.data["cycles"])

    def json(self) -> str:
        """The data as JSON."""
        return json.dumps(self.data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def html(self) -> str:
        """One self-contained page. Raises ConfigurationError without the packages of the extra `report`."""
        return page(self.data)

    def text(self) -> str:
        """About forty lines for a terminal, 88 characters wide."""
        return text(self.data)

    def perfetto(self) -> str:
        """The trace in Chrome's trace-event format, as JSON."""
        return json.dumps(trace(self.data), separators=(",", ":"), ensure_ascii=False)

    def save(self, path: str | Path) -> list[Path]:
        """Write the report as `path` (.html) and beside it as .json, .trace.json and .txt; return the files.

        Files that exist are replaced only when all new ones are on the disk. Raises OSError for a path that cannot be
        written.
        """
        base = Path(path)
        base = base.with_suffix("") if base.suffix in (".html", ".json", ".txt") else base
        forms = {".html": self.html, ".json": self.json, ".trace.json": self.perfetto, ".txt": self.text}
        contents = {base.with_name(base.name + suffix): make() for suffix, make in forms.items()}
        write_all(contents)
        return list(contents)

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """The report in a JSON or HTML file written by `save`.

        Raises OSError if the file cannot be read, and InvalidFile, a ValueError, if it has no report.
        """
        content = read_regular(path, MOST_BYTES).decode("utf-8", errors="replace")
        if Path(path).suffix == ".html":
            return cls(checked(unpacked(content, str(path)), str(path)))
        try:
            data = json.loads(content, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidFile(f"Expected a report as JSON in {path}. Received: {error}.") from error
        return cls(checked(data, str(path)))

    def table(self) -> str:
        """The verdict on each chip, for prompts."""
        return verdicts_text(self.data)

    def _repr_html_(self) -> str:
        """Charts and the whole text, for notebooks."""
        return pictures(self.data) + preformatted(self.text())


def checked(data: Any, origin: str) -> dict[str, Any]:
    """Return the data if they are a report of this version; otherwise raise InvalidFile."""
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise InvalidFile(f"Expected a report of this project in {origin}. Received: one without {FORMAT!r} as format.")
    if data.get("version") != VERSION:
        raise InvalidFile(f"Expected version {VERSION} of the report in {origin}. Received: {data.get('version')!r}.")
    import fastjsonschema

    try:
        _check()(data)
    except fastjsonschema.JsonSchemaValueException as error:
        wrong = str(error)[:200]
        raise InvalidFile(f"Expected a whole report in {origin}. Received: {wrong}. Make the report again.") from error
    return dict(data)


@cache
def _check() -> Callable[[Any], object]:
    """The function that schema.json is compiled to, which raises JsonSchemaValueException."""
    import fastjsonschema

    check: Callable[[Any], object] = fastjsonschema.compile(json.loads(SCHEMA.read_text(encoding="utf-8")))
    return check


def make_report(
    program: Program,
    chip: Target,
    *,
    name: str = "",
    assumptions: Assumptions | None = None,
    seeds: Mapping[str, int] | None = None,
    chips: Sequence[str] = CHIPS,
) -> Report:
    """The report on one step of a program on `chip`, with the verdicts of all other `chips`.

    Args:
        program: compute sets of one step.
        chip: the chip whose memory and cycles the report shows.
        name: a name of the program for readers; its own name if empty.
        assumptions: library options and I/O tiles; None for Poplar's defaults.
        seeds: seeds of random generators, by name.
        chips: names of the chips to compare.
    """
    assumed = assumptions or Assumptions()
    return report_of_estimates(
        *(lambda other: estimate(program, other, assumptions=assumed), chip, program),
        chips=chips,
        name=name,
        seeds=seeds,
    )


def report_of_estimates(
    on_chip: Callable[[Target], Estimate],
    chip: Target,
    program: Program | None,
    *,
    chips: Sequence[str] = CHIPS,
    **told: Any,
) -> Report:
    """The report on a program that `on_chip` estimates; `program` is None for a pipeline.

    All other arguments are those of `make_report`.
    """
    found = on_chip(chip)
    others = on_other_chips(found, on_chip, chips)
    if program is None:
        return report_on(found, others, **told)
    helps = () if found.fits else levers(program, found)
    return report_on(found, others, helps=helps, gradients=gradient_bytes(program), **told)


def report_on(
    found: Estimate,
    others: Sequence[Estimate] = (),
    *,
    name: str = "",
    feeding: Feeding | None = None,
    failure: str = "",
    helps: Sequence[Lever] = (),
    gradients: int = 0,
    seeds: Mapping[str, int] | None = None,
    source: Callable[[str], str] = lambda op_name: "",
) -> Report:
    """The report on an existing cost report, such as that of an OutOfTileMemory error.

    `feeding` are measurements of a run's queues. `failure` is the error's text, `helps` are its levers, and `gradients`
    the bytes that replicas would add up.
    `source` returns the line of the user's program for an op_name. All other arguments are those of `make_report`.
    """
    named = name or found.program_name
    subject = Subject(named, found, tuple(others), feeding, failure, tuple(helps), gradients, seeds or {}, source)
    return Report(report_data(subject))
