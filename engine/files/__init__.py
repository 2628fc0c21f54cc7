"""Compiled programs as files: their contents, writing and reading. See docs/executable_format.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.files.signature import Signature, TensorInfo, tensor_info

if TYPE_CHECKING:
    from engine.files.executable_file import SUFFIX, ExecutableFile, check_exportable, read_executable, write_executable
    from engine.files.trust import trusting_vertices

__all__ = [
    "SUFFIX",
    "ExecutableFile",
    "Signature",
    "TensorInfo",
    "check_exportable",
    "read_executable",
    "tensor_info",
    "trusting_vertices",
    "write_executable",
]


def __getattr__(name: str) -> Any:
    """Imports on demand the names of modules that check programs: an encoded program does without this long import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine.files import executable_file, trust

    return getattr(trust if name == "trusting_vertices" else executable_file, name)
