"""Compiles Python's bytecode where the project is installed from a clone, as pip does where it installs a wheel.

Otherwise the first program would compile it, before its first step. Python does not use bytecode of a source file that
has changed since.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("engine", "ipu", "keras_ext")


class Bytecode(BuildHookInterface):
    """A build hook that compiles bytecode before the files of an editable installation are written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the packages, unless the user wants no bytecode; what cannot be compiled or written is no error."""
        if version == "editable" and not sys.dont_write_bytecode:
            for package in PACKAGES:
                compileall.compile_dir(Path(self.root, package), quiet=2)
