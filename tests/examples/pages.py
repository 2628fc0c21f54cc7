"""Runs the Python blocks of a page, in order and in one namespace, and compares what they print.

A block fenced as `python` may be followed by one fenced as `text`, which holds its printout; without one it may
print what it likes.
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

CODE = r"(?P<code_block>```python\n(?P<code>.*?)^```\n)"
SHOWN = r"(?P<gap>\s*)(```text\n(?P<shown>.*?)^```\n)?"
BLOCK = re.compile(CODE + SHOWN, re.DOTALL | re.MULTILINE)


def printout(code: str, namespace: dict[str, object], name: str) -> str:
    """What the code prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue()


def pieces(page: str, name: str) -> Iterator[str]:
    """The page's parts, with true printouts."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    end = 0
    for block in BLOCK.finditer(page):
        printed = printout(block["code"], namespace, name)
        shown = f"```text\n{printed}```\n" if block["shown"] is not None else ""
        yield page[end : block.start()] + block["code_block"] + block["gap"] + shown
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
