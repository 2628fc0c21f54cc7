"""Pictures of cost reports for notebooks."""

from __future__ import annotations

from itertools import count
from typing import Any

from engine.errors import ConfigurationError
from engine.profile.program_estimate import Estimate
from engine.report.charts import CHARTS
from engine.report.charts.trace import has_all_tiles
from engine.report.data import Subject, report_data
from engine.report.render import picture, style_sheet

NAMES = ("pipeline", "memory-by-tile", "live-bytes", "costliest")
"""The charts that have data. Chips with few tiles have one more chart: each tile's work over the step."""
_numbers = count()


def pictures_of(shown: Any) -> str:
    """The charts of a cost report, or of that of a plan or an IPU; "" for other objects."""
    found = getattr(shown, "estimate", shown)
    return pictures(report_data(Subject("", found))) if isinstance(found, Estimate) else ""


def pictures(data: dict[str, Any]) -> str:
    """The charts of a report's data as one HTML element with its own colours; "" without the extra `report`."""
    number, made = next(_numbers), []
    try:
        for name in (*NAMES, *(["lanes"] if has_all_tiles(data) else [])):
            specification = CHARTS[name](data)
            made += [] if specification is None else [picture(specification, f"shown-{number}-{name}")]
    except ConfigurationError:
        return ""
    style = style_sheet().partition("* {")[0].replace(":root", ".software-ipu")
    inside = "background: var(--paper); color: var(--ink); max-width: 960px; padding: 0.5em"
    return f'<style>{style}</style><div class="software-ipu" style="{inside}">{"".join(made)}</div>'
