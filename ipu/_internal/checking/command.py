"""The command: files and folders in, a listing or JSON out."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ipu._internal.checking.finding import LEVELS, Finding
from ipu._internal.checking.program import CheckedProgram, read, with_legacy_keras

DESCRIPTION = """Reads programs for IPUs, without running them, and prints what works here, what needs a change and
which, and what is refused. Names and arguments are looked up in the installed TensorFlow, Keras and this package.
Operations are checked when a program is traced (docs/supported_ops.md)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all programs run as they are, 1 if one needs a change or is refused, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m ipu.check", description=DESCRIPTION)
    parser.add_argument("program", nargs="+", type=Path, help="a Python file or a notebook, or a folder of them")
    parser.add_argument("--json", action="store_true", help="print a JSON object for programs and machines")
    options = parser.parse_args(arguments)
    absent = [str(path) for path in options.program if not path.exists()]
    if absent:
        parser.error(f"Expected files or folders. Received: {', '.join(absent)}, which do not exist.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    programs = _checked(list(_files(options.program)))
    if not programs:
        parser.error("Expected Python files. Received: folders without Python files.")
    print(json.dumps(programs, indent=2) if options.json else "\n".join(_listing(programs)))
    return int(any(finding["level"] != "note" for program in programs.values() for finding in program["findings"]))


def _checked(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Findings on files, and on the files beside them that they import, by their paths."""
    from ipu._internal.checking.files import local_files, source_of  # late: it imports TensorFlow

    found, read_ones, parts = dict[str, dict[str, Any]](), dict[Path, CheckedProgram](), dict[Path, set[Path]]()
    pending = list(paths)
    while pending:
        path = pending.pop(0)
        if str(path) in found:
            continue
        found[str(path)] = {}
        try:
            read_ones[path] = read(source_of(path))
        except (SyntaxError, ValueError) as error:
            found[str(path)] = _unreadable(error)
            continue
        beside = local_files(read_ones[path], path)
        pending += beside
        # A mode that one module of a program switches off is off for all.
        together = set().union({path}, *(parts.get(each, {each}) for each in (path, *beside)))
        parts |= dict.fromkeys(together, together)
    for path, program in read_ones.items():
        found[str(path)] = _of_program(program, path, [read_ones[each] for each in parts[path] if each in read_ones])
    return found


def _unreadable(error: SyntaxError | ValueError) -> dict[str, Any]:
    line = getattr(error, "lineno", None) or 1
    return {"works": [], "findings": [_plain(Finding(line, "change", "the file", f"It is not Python 3: {error}."))]}


def check(source: bytes | str) -> dict[str, Any]:
    """The findings of a program as plain data, with the names of this API in it that work."""
    try:
        program = read(source)
    except (SyntaxError, ValueError) as error:
        return _unreadable(error)
    return _of_program(program, None, [program])


def _of_program(program: CheckedProgram, path: Path | None, together: list[CheckedProgram]) -> dict[str, Any]:
    """The findings of a module, among the modules of its program."""
    from ipu._internal.checking.checks import findings, working_names  # late: they import TensorFlow
    from ipu._internal.checking.files import absent_modules, absent_names

    if any(each.legacy_keras for each in together):
        program = with_legacy_keras(program)
    absent = [] if path is None else [*absent_modules(program, path), *absent_names(program, path)]
    found = findings(program, together, absent)
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
