"""Compiled programs as files: their contents, writing and reading. See docs/executable_format.md."""

from engine.files.executable_file import (
    SUFFIX,
    ExecutableFile,
    Signature,
    TensorInfo,
    check_exportable,
    read_executable,
    tensor_info,
    write_executable,
)
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
