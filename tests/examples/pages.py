"""Runs the Python blocks of a page, in order and in one namespace, and compares what they print.

A block fenced as `python` may be followed by one fenced as `text`, which holds its printout.
`python -m tests.examples.pages PAGE` fails where they differ; with `--write` it puts the true printouts in.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"(```python\n(?P<code>.*?)^```\n)(?P<gap>\s*)(```text\n(?P<shown>.*?)^```\n)?", re.S | re.M)


def printout(code: str, namespace: dict[str, object], name: str) -> str:
    """What the code prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue()


def pieces(page: str, name: str) -> Iterator[str]:
    """The page's parts, with true printouts; a block that prints nothing keeps none."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    end = 0
    for block in BLOCK.finditer(page):
        yield page[end : block.start()] + block[1]
        shown = printout(block["code"], namespace, name)
        yield (f"\n```text\n{shown}```\n" if shown else "") + ("" if block[4] else block["gap"])
        end = block.end()
    yield page[end:]


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs a page's Python blocks and compares their printouts.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="put the true printouts into the page")
    arguments = parser.parse_args()
    page = arguments.page.read_text()
    true = "".join(pieces(page, arguments.page.name))
    if arguments.write:
        arguments.page.write_text(true)
        return 0
    difference = difflib.unified_diff(page.splitlines(True), true.splitlines(True), "page", "run")
    sys.stdout.writelines(difference)
    return int(page != true)


if __name__ == "__main__":
    sys.exit(main())
