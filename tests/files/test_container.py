"""Files that are cut off, altered, spliced or of another version, and files that many processes write."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InvalidFile
from engine.files.container import MAGIC, PREFIX, VERSION, pack, unpack
from engine.files.executable_file import from_bytes, read_executable, to_bytes, write_executable
from engine.ir.printer import print_module
from tests.files.programs import classifier


@pytest.fixture(scope="module")
def content() -> bytes:
    return to_bytes(classifier())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = classifier(updates=True)
    write_executable(tmp_path / "new folder" / "program.poplar_exec", file)
    read = read_executable(tmp_path / "new folder" / "program.poplar_exec")
    assert print_module(read.module) == print_module(file.module)
    assert (read.roles, read.signature, read.variable_names) == (file.roles, file.signature, file.variable_names)
    for given, values in ((file.constants, read.constants), (file.variables, read.variables)):
        assert given.keys() == values.keys()
        assert all(np.array_equal(given[k], values[k]) and given[k].dtype == values[k].dtype for k in given)


def test_the_same_program_gives_the_same_bytes(content: bytes) -> None:
    assert to_bytes(classifier()) == content


def test_every_truncation_is_refused(content: bytes) -> None:
    for length in {*range(0, len(content), 37), *range(PREFIX.size + 2), len(content) - 1}:
        with pytest.raises(InvalidFile):
            from_bytes(content[:length], "a file")


def test_every_altered_byte_is_found(content: bytes) -> None:
    _, sections = unpack(content, "a file")
    body = sum(len(section) for section in sections.values())
    unnoticed = 0
    for place in range(0, len(content), 11):
        altered = bytearray(content)
        altered[place] ^= 0x10
        try:
            from_bytes(bytes(altered), "a file")
            unnoticed += 1
        except InvalidFile:
            pass
    # Only the gap between two sections, of less than 64 bytes, is not covered by a checksum.
    assert unnoticed <= 64 // 11 + 1 and body > 100


def test_more_bytes_than_belong_to_it_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidFile, match=f"Received: {len(content) + 1}"):
        from_bytes(content + b"\0", "a file")


@pytest.mark.parametrize(("version", "advice"), [(0, "Export the program again"), (VERSION + 1, "newer version")])
def test_other_versions_are_named(content: bytes, version: int, advice: str) -> None:
    other = MAGIC + version.to_bytes(4, "little") + content[12:]
    with pytest.raises(
        ValueError, match=rf"version {VERSION} of the format in my file. Received: {version}. .*{advice}"
    ):
        from_bytes(other, "my file")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04" * 40, b"\x80\x04\x95" * 40, os.urandom(500)])
def test_other_kinds_of_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.poplar_exec"
    path.write_bytes(data)
    with pytest.raises(InvalidFile, match="Expected an executable of this engine in .*other"):
        read_executable(path)


def test_sections_of_two_files_do_not_mix() -> None:
    header, mine = unpack(to_bytes(classifier(4)), "a file")
    _, other = unpack(to_bytes(classifier(6)), "a file")
    spliced = pack(header, {"program": bytes(other["program"]), "arrays": bytes(mine["arrays"])})
    with pytest.raises(InvalidFile, match="inputs of"):
        from_bytes(spliced, "a file")


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_executable(tmp_path / "none.poplar_exec")


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        write_executable(tmp_path / "file" / "program.poplar_exec", classifier())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program.poplar_exec"
    write_executable(path, classifier())
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write_executable(path, classifier(8))
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "program.poplar_exec"
    before = os.umask(0o022)
    try:
        write_executable(path, classifier())
    finally:
        os.umask(before)
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o644


WRITER = """
import sys
from engine.files.executable_file import write_executable
from tests.files.programs import classifier
for k in range(30):
    write_executable(sys.argv[1], classifier(int(sys.argv[2])))
"""


def test_processes_that_write_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "program.poplar_exec"
    write_executable(path, classifier(3))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(batch)], cwd=Path(__file__).parents[2])
        for batch in (3, 5)
    ]
    sizes = set()
    while any(writer.poll() is None for writer in writers):
        sizes.add(read_executable(path).signature.inputs[0].shape[0])
    assert [writer.returncode for writer in writers] == [0, 0] and sizes <= {3, 5}
    assert os.listdir(tmp_path) == [path.name]
