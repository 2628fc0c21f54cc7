"""The versions that processes of one run must have in common."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from engine.errors import ProcessError

PACKAGES = ("software-ipu", "tensorflow", "keras", "tf-keras", "numpy")


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that determine a program's results."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def check_versions(all_gather: Callable[[dict[str, str]], list[dict[str, str]]], rank: int) -> None:
    """Raises ProcessError if another process has other versions; `all_gather` gives those of all, by rank."""
    every = all_gather(versions())
    different = [(n, name) for n, each in enumerate(every) for name in each if each[name] != every[0].get(name)]
    if different:
        number, name = different[0]
        raise ProcessError(
            f"Expected the same versions in all processes. Received, in process {rank}: {name} {every[0][name]} in "
            f"process 0 and {every[number][name]} in process {number}. Install the same in all environments."
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
