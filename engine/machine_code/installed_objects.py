"""Object code that comes with an installation from a wheel: an archive for each level of processors.

The build hook of the wheel writes the archives. An archive is used if it was compiled from the installed sources, for
this kind of processor and for blocks of this cache; what it lacks is compiled when it is needed.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from functools import cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from engine.machine_code import sources
from engine.machine_code.caches import LARGE, second_level
from engine.machine_code.instruction_sets import AARCH64, LEVELS
from engine.machine_code.processor import ARM, X86, lanes, rounds_to_bf16, target

SOURCES = sources.ENGINE / "codelets", sources.ENGINE / "emit"
FOLDER = sources.ENGINE / "data" / "objects"
PROCESSORS = {
    "x86-64-v3": (*LEVELS["x86-64-v3"], (1 << 18, 1 << 19, LARGE)),
    "x86-64-v4": (*LEVELS["x86-64-v4"], (LARGE,)),
    "x86-64-v4-bf16": (LEVELS["x86-64-v4"][0], LEVELS["x86-64-v4"][1] + ",+avx512bf16", (LARGE,)),
    "aarch64": (*AARCH64, (1 << 19, LARGE)),
}
"""LLVM's CPU name and features, and usual bytes of second-level caches, of the processors that wheels have objects for.
Larger caches take the objects for LARGE bytes, whose blocks differ little."""


def find(path: Path) -> bytes | None:
    """The installed object code for a path of the cache; None if there is none."""
    archive = _archive() if path.parent.name.startswith(("codelets-", "objects-")) else None
    try:
        return None if archive is None else archive.read(path.name)
    except (KeyError, BadZipFile, zlib.error):
        return None


@cache
def _archive() -> ZipFile | None:
    """The archive for this processor, in memory; None if the installation has none."""
    level = level_of_processor()
    if level is None:
        return None
    try:
        return ZipFile(io.BytesIO((FOLDER / file_name(level)).read_bytes()))
    except (OSError, BadZipFile):
        return None


def level_of_processor() -> str | None:
    """The level of PROCESSORS with as many lanes as the processor, if it has all features of that level.

    Objects without the instruction that rounds to bf16 would be slower where the processor has it.
    """
    level = {16: "x86-64-v4-bf16" if rounds_to_bf16() else "x86-64-v4", 8: "x86-64-v3", 4: "aarch64"}[lanes()]
    required = {feature.removeprefix("+") for feature in PROCESSORS[level][1].split(",")}
    return level if (ARM if level == "aarch64" else X86) and required <= target()[1] else None


def file_name(level: str) -> str:
    """The name of the archive of a level, of this processor's cache and of the present sources."""
    kibibytes = min(second_level(), LARGE) >> 10
    digest = hashlib.sha256(b"".join(map(sources.digest_at, SOURCES))).hexdigest()
    return f"{level}-{kibibytes}K-{digest[:32]}.zip"


def write(folder: Path, objects: dict[str, bytes]) -> Path:
    """Writes the archive of this process' processor, which has a level, from object code by names of the cache."""
    level = level_of_processor()
    assert level is not None
    path = folder / file_name(level)
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, code in sorted(objects.items()):
            archive.writestr(name, code)
    return path
