"""A check of a report against schema.json, by the keywords of JSON Schema that the file has for kinds and parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

KINDS: dict[str, tuple[type, ...]] = {
    **{"object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),)},
    **{"integer": (int,), "number": (int, float)},
}


@cache
def _schema() -> Mapping[str, Any]:
    return dict(json.loads((Path(__file__).parent / "schema.json").read_text(encoding="utf-8")))


def fault_of(data: object) -> str | None:
    """Names what makes data no report, such as "cycles: no 'compute'"; None for a report."""
    return _fault(data, _schema(), "")


def _fault(value: Any, schema: Mapping[str, Any], at: str) -> str | None:
    if "$ref" in schema:
        found: Any = _schema()
        for part in schema["$ref"].lstrip("#/").split("/"):
            found = found[part]
        return _fault(value, found, at)
    if "oneOf" in schema:
        faults = [_fault(value, each, at) for each in schema["oneOf"]]
        return None if None in faults else next(fault for fault in reversed(faults) if fault)
    kinds = schema.get("type", [])
    if kinds and not any(_is_of(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return f"{at or 'the report'}: {value!r:.40} in place of {kinds}"
    if isinstance(value, dict):
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            return f"{at or 'the report'}: no {missing[0]!r}"
        parts, rest = schema.get("properties", {}), schema.get("additionalProperties")
        inner = {name: parts.get(name, rest) for name in value}
        faults = [
            _fault(value[k], part, f"{at}.{k}".lstrip(".")) for k, part in inner.items() if isinstance(part, dict)
        ]
        return next(filter(None, faults), None)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return next(filter(None, (_fault(each, schema["items"], f"{at}[]") for each in value)), None)
    return None


def _is_of(value: Any, kind: str) -> bool:
    no_number = isinstance(value, bool) or (isinstance(value, float) and not isfinite(value))
    return isinstance(value, KINDS[kind]) and not (no_number and kind in ("integer", "number"))
