"""Files of programs: Python, notebooks, and the modules beside them that they import."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ipu._internal.checking.finding import Finding
from ipu._internal.checking.installed import is_checked
from ipu._internal.checking.program import CheckedProgram, Imported, read

NOTEBOOK = ".ipynb"
NOT_IN_FILE = "{} does not define it."
ABSENT = "No module of this name is installed, and none is beside the program."


def source_of(path: Path) -> bytes | str:
    """The source of a Python file, or of the cells of a notebook, with `pass` in place of the notebook's commands.

    Raises ValueError for a file that is no notebook in spite of its name.
    """
    if path.suffix != NOTEBOOK:
        return path.read_bytes()
    try:
        cells = [each for each in json.loads(path.read_bytes())["cells"] if each["cell_type"] == "code"]
        texts = ["".join(each["source"]) for each in cells]
    except (KeyError, TypeError) as error:
        raise ValueError(f"a notebook without cells ({error})") from error
    return "\n".join(_without_commands(text) for text in texts)


def _without_commands(cell: str) -> str:
    if cell.lstrip().startswith("%%") and not cell.lstrip().startswith(("%%time", "%%capture")):
        return "\n".join("pass" for _ in cell.splitlines())  # of another language
    lines = []
    for line in cell.splitlines():
        bare = line.lstrip()
        lines.append(f"{line[: len(line) - len(bare)]}pass" if bare.startswith(("%", "!", "?")) else line)
    return "\n".join(lines)


def local_files(program: CheckedProgram, path: Path) -> list[Path]:
    """The files beside a program that it imports."""
    return [each for imported in program.imports for each in _files_of(imported, path)]


def absent_modules(program: CheckedProgram, path: Path) -> Iterator[Finding]:
    """Modules that a program needs, and that are neither installed nor beside it, nor in the table of old names."""
    for each in program.imports:
        root = each.module.partition(".")[0]
        if each.level or each.optional or is_checked(each.module) or _files_of(each, path):
            continue
        if root not in sys.stdlib_module_names and not _is_installed(root) and not (path.parent / root).is_dir():
            yield Finding(each.line, "change", each.module, ABSENT)


def absent_names(program: CheckedProgram, path: Path) -> Iterator[Finding]:
    """Names that a program takes from modules beside it, and that these do not have."""
    for each in program.imports:
        found = [file for file in _files_of(each, path) if each.module and file.stem in (_last(each), "__init__")]
        own = [file for file in found if file.stem == _last(each) or file.parent.name == _last(each)]
        if each.optional or not own:
            continue
        try:
            defined = read(source_of(own[0])).defined
        except (SyntaxError, ValueError):
            continue  # the file's own findings say so
        if defined is None:
            continue
        for name in each.names:
            if name != "*" and name not in defined and not _is_module_of(own[0], name):
                yield Finding(each.line, "change", f"{each.module}.{name}", NOT_IN_FILE.format(own[0].name))


def _last(imported: Imported) -> str:
    return imported.module.rpartition(".")[2]


def _is_module_of(package: Path, name: str) -> bool:
    beside = package.parent
    return package.stem == "__init__" and ((beside / f"{name}.py").is_file() or (beside / name).is_dir())


def _is_installed(root: str) -> bool:
    try:
        return find_spec(root) is not None
    except (ImportError, ValueError):
        return False


def _files_of(imported: Imported, path: Path) -> list[Path]:
    folder = path.parent if not imported.level else path.parents[min(imported.level, len(path.parents)) - 1]
    base = folder.joinpath(*filter(None, imported.module.split(".")))
    places = [base, *(base / name for name in imported.names)]
    candidates = [each for place in places for each in (place.with_suffix(".py"), place / "__init__.py")]
    return [each for each in candidates if each.is_file() and each != path]
