"""Rendered charts: pictures for pages without scripts, and the library that makes them interactive.

The library is Vega-Lite, which vl-convert-python includes: nothing is downloaded.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

from engine import cache_directory
from engine.errors import ConfigurationError
from engine.report.charts.style import WIDTH

TEMPLATES = Path(__file__).parent / "templates"
RUNTIME = "window.vegaEmbed = vegaEmbed;"
CLIP = re.compile(r'(id="|url\(#)(clip|gradient)')
NAMESPACES = re.compile(r' xmlns(:xlink)?="[^"]*"')


def library() -> ModuleType:
    """The module vl_convert. Raises ConfigurationError if it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise ConfigurationError(
            "Expected the packages that draw reports. Received: they are not installed "
            f"({error}). Install them with: pip install 'software-ipu[report]'. JSON, text and traces need none."
        ) from error
    return vl_convert


def picture(specification: dict[str, Any], name: str) -> str:
    """The chart as an SVG element; `name` makes its inner ids unique on the page."""
    fixed = copy.copy(specification) | {"width": WIDTH}
    svg: str = library().vegalite_to_svg(fixed)
    # Inline SVG needs no namespaces, and the page determines its size.
    svg = NAMESPACES.sub("", svg)
    svg = CLIP.sub(rf"\1{name}-\2", svg)
    return re.sub(r'<svg ([^>]*?)width="[\d.]+" height="[\d.]+"', r"<svg \1", svg, count=1)


@cache
def runtime() -> str:
    """Vega-Lite and its dependencies as one script, bundled once for each version and kept in the user's cache."""
    convert = library()
    versions = f"{convert.get_vega_version()}-{convert.get_vegalite_versions()[-1]}-{convert.get_vega_embed_version()}"
    kept = cache_directory.cache_directory("report") / f"vega-{versions}.js"
    found = cache_directory.load(kept)
    if found is not None:
        return found.decode()
    script: str = convert.javascript_bundle(RUNTIME)
    cache_directory.store(kept, script.encode())
    return script


@cache
def prepare() -> Thread:
    """Start the library, once, in a thread that the caller joins: it takes half a second."""
    thread = Thread(target=_start, name="report library", daemon=True)
    thread.start()
    return thread


def _start() -> None:
    try:
        runtime()
        picture({"data": {"values": []}, "mark": "point", "encoding": {}}, "none")
    except ConfigurationError:
        return  # `library` raises the error again when a chart needs it


def style_sheet() -> str:
    """The style sheet of pages and notebooks. Its first rules define the colours."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")
