"""The command: files and folders in, a listing or JSON out."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ipu._internal.checking.finding import LEVELS, Finding
from ipu._internal.checking.program import read

DESCRIPTION = """Reads programs for IPUs, without running them, and prints what works here, what needs a change and
which, and what is refused. Names and arguments are looked up in the installed TensorFlow, Keras and this package.
Operations are checked when a program is traced (docs/supported_ops.md)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all programs run as they are, 1 if one needs a change or is refused, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m ipu.check", description=DESCRIPTION)
    parser.add_argument("program", nargs="+", type=Path, help="a Python file or a notebook, or a folder of them")
    parser.add_argument("--json", action="store_true", help="print a JSON object for programs and machines")
    options = parser.parse_args(arguments)
    absent = [str(path) for path in options.program if not path.exists()]
    if absent:
        parser.error(f"Expected files or folders. Received: {', '.join(absent)}, which do not exist.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    programs: dict[str, dict[str, Any]] = {}
    pending = list(_files(options.program))
    while pending:
        path = pending.pop(0)
        if str(path) not in programs:
            programs[str(path)], beside = _checked_file(path)
            pending += beside
    if not programs:
        parser.error("Expected Python files. Received: folders without any.")
    print(json.dumps(programs, indent=2) if options.json else "\n".join(_listing(programs)))
    return int(any(finding["level"] != "note" for program in programs.values() for finding in program["findings"]))


def _checked_file(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """What `check` says of a file, and the files beside it that it imports."""
    from ipu._internal.checking.files import local_files, source_of  # late: it imports TensorFlow

    try:
        source = source_of(path)
        return check(source, path), local_files(read(source), path)
    except (SyntaxError, ValueError) as error:
        return _unreadable(error), []


def _unreadable(error: SyntaxError | ValueError) -> dict[str, Any]:
    line = getattr(error, "lineno", None) or 1
    return {"works": [], "findings": [_plain(Finding(line, "change", "the file", f"It is not Python 3: {error}."))]}


def check(source: bytes | str, path: Path | None = None) -> dict[str, Any]:
    """The findings of a program as plain data, with the names of this API in it that work.

    With its `path`, modules are looked for beside it.
    """
    try:
        program = read(source)
    except (SyntaxError, ValueError) as error:
        return _unreadable(error)
    from ipu._internal.checking.checks import findings, working_names  # late: they import TensorFlow

    found = findings(program)
    if path is not None:
        from ipu._internal.checking.files import absent_modules

        found = sorted({*found, *absent_modules(program, path)}, key=lambda finding: (finding.line, finding.what))
    return {"works": working_names(program), "findings": [_plain(finding) for finding in found]}


def _plain(finding: Finding) -> dict[str, Any]:
    return {"line": finding.line, "level": finding.level, "name": finding.what, "advice": finding.advice}


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        found = [each for each in path.rglob("*") if each.suffix in (".py", ".ipynb") and each.is_file()]
        yield from sorted(found) if path.is_dir() else (path,)


def _listing(programs: dict[str, dict[str, Any]]) -> Iterator[str]:
    for path, program in programs.items():
        found = program["findings"]
        for level in reversed(LEVELS):
            advice: dict[str, list[dict[str, Any]]] = {}
            for finding in found:
                if finding["level"] == level:
                    advice.setdefault(finding["advice"], []).append(finding)
            for text, findings in advice.items():
                lines = sorted({finding["line"] for finding in findings})
                names = ", ".join(dict.fromkeys(finding["name"] for finding in findings))
                more = f" (also {_some(lines[1:])})" if lines[1:] else ""
                yield f"{path}:{lines[0]}: {level}: {names}{more}: {text}"
        counts = ", ".join(f"{sum(each['level'] == level for each in found)} {level}" for level in reversed(LEVELS))
        works = program["works"]
        names = f": {', '.join(works)}" if works else ""
        yield f"{path}: {counts}; {len(works)} {'name works' if len(works) == 1 else 'names work'}{names}"


def _some(lines: list[int]) -> str:
    shown = ", ".join(map(str, lines[:5]))
    return f"line{'s' * (len(lines) > 1)} {shown}{', ...' * (len(lines) > 5)}"
