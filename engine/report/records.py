"""Records of a cost report as plain data."""

from __future__ import annotations

from typing import Any


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Fields and properties of a record, by name."""
    return {name: getattr(record, name) for name in names}
