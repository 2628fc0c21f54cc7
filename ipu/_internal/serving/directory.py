"""Atomic writes of the directory of an export: it is either unchanged or complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ConfigurationError


def check_directory(export_dir: str | Path, purge: bool) -> None:
    """Raises ConfigurationError, a ValueError, for a file, or a directory that is not empty without `purge`."""
    path = Path(export_dir)
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"Expected export_dir to be a directory. Received: {str(path)!r}, which is a file.")
    if not purge and path.is_dir() and any(path.iterdir()):
        raise ConfigurationError(
            f"Expected export_dir to be empty, or not to exist. Received: {str(path)!r}, which is not empty. Pass "
            "purge_export_dir=True to replace what is in it."
        )


@contextlib.contextmanager
def complete_directory(export_dir: str | Path) -> Iterator[Path]:
    """A directory beside `export_dir` to write into, which replaces it and its contents at the end.

    So a server that watches the parent never sees a partial version; after an error nothing has changed.
    """
    target = Path(export_dir).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    partial.mkdir()
    try:
        yield partial
        _replace(target, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(target: Path, complete: Path) -> None:
    if target.is_symlink():
        target = target.resolve()
    if not target.exists():
        os.rename(complete, target)
        return
    old = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    os.rename(target, old)
    try:
        os.rename(complete, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old)
