"""Run the Python blocks of a page, in order and in one namespace, and compare their printouts.

A block fenced as `python` may be followed by one fenced as `text`, which holds its printout. Without a `text` block its
printout is not compared. `python -m tests.examples.pages PAGE ...` fails if printouts differ; `--write` corrects them.
Each page has a process of its own, forked from one that has imported TensorFlow, and a folder for the files it writes.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import linecache
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

CODE = r"(?P<code_block>```python\n(?P<code>.*?)^```\n)"
SHOWN = r"(?P<gap>\s*)(```text\n(?P<shown>.*?)^```\n)?"
BLOCK = re.compile(CODE + SHOWN, re.DOTALL | re.MULTILINE)


def printout(code: str, namespace: dict[str, object], name: str) -> str:
    """The text that the code prints. AutoGraph finds its source by the name."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue()


def pieces(page: str, name: str) -> Iterator[str]:
    """The page's parts, with true printouts."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    end = 0
    for block in BLOCK.finditer(page):
        printed = printout(block["code"], namespace, f"{name}:{page.count(chr(10), 0, block.start()) + 1}")
        shown = f"```text\n{printed}```\n" if block["shown"] is not None else ""
        yield page[end : block.start()] + block["code_block"] + block["gap"] + shown
        end = block.end()
    yield page[end:]


def same(path: Path, write: bool) -> bool:
    """Run the page, and print the differences of its printouts or correct them (`write`); return whether all agreed."""
    page = path.read_text()
    true = "".join(pieces(page, path.name))
    if write:
        path.write_text(true)
    else:
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), true.splitlines(True), str(path), "run"))
    return write or page == true


def main() -> int:
    """Return 0 if all printouts agree, else 1."""
    parser = argparse.ArgumentParser(description="Runs pages' Python blocks and compares their printouts.")
    parser.add_argument("page", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="put the true printouts into the pages")
    arguments = parser.parse_args()
    importlib.import_module("keras")
    failed = 0
    for page in arguments.page:
        child = os.fork()
        if not child:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    page = page.absolute()
                    os.chdir(folder)
                    code = int(not same(page, arguments.write))
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            os._exit(code)
        failed |= os.waitpid(child, 0)[1]
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
