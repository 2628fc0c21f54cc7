"""Compiled code on disk: its folders, which of them this machine and release use, their removal, and code made
ahead.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from engine.cache_directory import FOLDER, cache_directory

ROOT_KIND = "codelets"
CONTENT = {
    "codelets": "codelets, which all programs share",
    "objects": "fused loops and vertices",
    "programs": "whole programs",
}


def root() -> Path:
    """The folder of all compiled code; it need not exist."""
    return cache_directory(ROOT_KIND).parent


def listing() -> Iterator[str]:
    """Lines `name value`: the folder, and bytes and files of each kind of code."""
    yield f"cache         {root()}"
    for kind, content in CONTENT.items():
        folders = [folder for folder in _folders() if folder.name.partition("-")[0] == kind]
        files = [file for folder in folders for file in folder.iterdir() if not file.name.startswith("used-by-")]
        size = sum(file.stat().st_size for file in files)
        yield f"  {kind:12}{len(files)} files, {size / 2**20:.1f} MiB, of {len(folders)} releases: {content}"


def cleared() -> Iterator[str]:
    """Removes all folders of compiled code, and nothing else; yields lines that say so."""
    yield from listing()
    folders = list(_folders())
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # another process may store in it
    yield f"removed       {len(folders)} folders; processes that run keep what they have loaded"


def warmed() -> Iterator[str]:
    """Compiles the codelets and loops that many programs need and are not stored yet; yields lines that say so."""
    from engine.codelets.language.build import building, make
    from engine.installation import loops_of, usual_steps
    from engine.runtime.general_codelets import general_codelets

    compiled: list[str] = []
    with building(compiled.append):
        make([*general_codelets(), *loops_of(usual_steps())])
    yield f"compiled      {len(compiled)} codelets that do not depend on a model"
    yield from listing()


def _folders() -> Iterator[Path]:
    if root().is_dir():
        yield from (each for each in sorted(root().iterdir()) if FOLDER.fullmatch(each.name) and not each.is_symlink())
