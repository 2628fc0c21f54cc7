"""Pages of notebooks: their Markdown, code, and the outputs kept in them, which the build does not make again."""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLANK = re.compile(r"\n\s*\n")
HEAD = '<p><a href="{name}.ipynb" download>{name}.ipynb</a> opens with Jupyter. Outputs are those of one run.</p>'


@functools.cache
def pages(docs: Path) -> dict[str, str]:
    """Markdown by the path of its page."""
    found = [path for folder in ("tutorials", "teaching") for path in sorted((docs / folder).glob("*.ipynb"))]
    return {f"{path.parent.name}/{path.stem}.md": "\n\n".join(_page(path)) for path in found}


def _page(path: Path) -> Iterator[str]:
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        if number == 0:
            yield HEAD.format(name=path.stem)
        yield from map(_shown, cell.get("outputs", ()))


def _shown(output: dict[str, Any]) -> str:
    """An output in its richest form. Blank lines would end a block of HTML."""
    data = output.get("data", {})
    if "text/html" in data:
        return f'<div class="cell-output">{BLANK.sub(chr(10), "".join(data["text/html"]))}</div>'
    text = "".join(data.get("text/plain", output.get("text", "")))
    return f'<pre class="cell-output">{BLANK.sub("<br><br>", html.escape(text.rstrip()))}</pre>'
