"""Malicious files: some have right checksums, some are no programs."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import aot
from engine.errors import ConfigurationError, InvalidFile
from engine.files.container import pack, unpack
from engine.files.executable_file import from_bytes, read_executable, to_bytes
from engine.files.objects import give_objects
from engine.ir.builder import Builder
from engine.machine_code import costs
from engine.report import Report
from engine.report.page import MARK, unpacked
from engine.serving.manifest import read_manifest
from tests.exploring import examples
from tests.files.programs import classifier, plain_file
from tests.interrupting import HANGS_SECONDS


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [1, 2])
def test_tampered_files_end_in_errors_and_never_in_a_crash(seed: int) -> None:
    count = examples(1500, 200)
    command = [sys.executable, "-m", "tests.files.hostile", str(seed), str(count)]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=HANGS_SECONDS
    )
    assert result.returncode == 0, result.stderr[-3000:]
    ends = json.loads(result.stdout)
    assert ends["ran"] + ends["refused"] == count and ends["ran"] > count / 30 and ends["refused"] > count / 3


def sealed(change: Any) -> bytes:
    """The classifier's file after `change(header, program)`, with right checksums."""
    header, sections = unpack(to_bytes(classifier()), "a file")
    program = json.loads(bytes(sections["program"]))
    change(header, program)
    return pack(header, {"program": json.dumps(program).encode(), "arrays": bytes(sections["arrays"])})


def entry(program: Any) -> Any:
    return program["module"]["computations"][-1]["instructions"]


def huge(_: Any, program: Any) -> None:
    entry(program)[0][2] = ["f32", 2**20, 2**19]


def outside(_: Any, program: Any) -> None:
    program["constants"]["1"]["offset"] = 2**20


def of_itself(_: Any, program: Any) -> None:
    entry(program)[-1][3] = [len(entry(program)) - 1]


def deep(header: Any, _: Any) -> None:
    header["metadata"] = {"a": []}
    for _ in range(50):
        header["metadata"] = {"a": header["metadata"]}


def unknown(_: Any, program: Any) -> None:
    entry(program)[-2][1] = "__import__('os').abort"


def other_role(_: Any, program: Any) -> None:
    program["roles"][1] = "code"


def not_a_number(_: Any, program: Any) -> None:
    entry(program)[0][4]["parameter_number"] = True


def calling_twice(levels: int, calls: int) -> bytes:
    """A file with computations, each of which calls the one before it `calls` times."""
    inner = None
    for level in range(levels):
        b = Builder(f"c{level}")
        x = y = b.parameter("f32", (4,))
        for _ in range(calls):
            y = b.add(y, x) if inner is None else b.call(inner, y)
        inner = b.build(y)
    b = Builder()
    return plain_file(b.module(b.tuple(b.call(inner, b.parameter("f32", (4,))))))


@pytest.mark.parametrize("levels, calls, words", [(20, 2, "262144 instructions"), (100, 1, "64 levels of calls")])
def test_calls_of_calls_are_bounded(levels: int, calls: int, words: str) -> None:
    with pytest.raises(InvalidFile, match=f"Expected at most {words}"):
        from_bytes(calling_twice(levels, calls), "a file")
    from_bytes(calling_twice(8, calls), "a file")


@pytest.mark.parametrize("change", [huge, outside, of_itself, deep, unknown, other_role, not_a_number])
def test_contradictions_are_named(change: Any) -> None:
    with pytest.raises(InvalidFile, match="Expected a valid executable in a file"):
        from_bytes(sealed(change), "a file")


def test_nothing_has_changed_without_a_change() -> None:
    assert from_bytes(sealed(lambda header, program: None), "a file").roles == classifier().roles


def test_nesting_without_end_is_refused() -> None:
    header, sections = unpack(to_bytes(classifier()), "a file")
    text = b"[" * 200_000 + b"]" * 200_000
    with pytest.raises(InvalidFile, match="JSON"):
        from_bytes(pack(header, {"program": text, "arrays": bytes(sections["arrays"])}), "a file")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_pipes_and_devices_are_refused_without_waiting(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "assets" / "ipu_serving.json"
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    read = [
        engine.load,
        read_executable,
        give_objects,
        Report.load,
        lambda _: aot.compile_ahead(path, tmp_path / "objects"),
    ]
    for each in (*read, lambda _: read_manifest(tmp_path)):
        with pytest.raises(InvalidFile, match=f"a regular file. Received: a {kind}"):
            each(path)
    monkeypatch.setenv("SOFTWARE_IPU_COSTS", str(path))
    with pytest.raises(ConfigurationError, match=f"a regular file. Received: a {kind}"):
        costs.with_file(costs.DEFAULT, path)


def test_files_above_their_bound_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_bytes(b"#" * (costs.MOST_BYTES + 1))
    with pytest.raises(ConfigurationError, match=f"at most {costs.MOST_BYTES} bytes"):
        costs.with_file(costs.DEFAULT, path)


def test_reports_that_unpack_to_far_more_are_refused() -> None:
    packed = gzip.compress(b" " * (1 << 22), 6)
    with pytest.raises(InvalidFile, match="unpacks to more than"):
        unpacked(MARK + base64.b64encode(packed).decode() + "</script>", "a page")
    whole = gzip.compress(b'{"report": {"a": 1}}')
    assert unpacked(MARK + base64.b64encode(whole).decode() + "</script>", "a page") == {"a": 1}
    for damaged in (whole[:-10], b"", gzip.compress(b"{}"), b"not packed"):
        with pytest.raises(InvalidFile, match="another page"):
            unpacked(MARK + base64.b64encode(damaged).decode() + "</script>", "a page")


def test_headers_of_objects_are_checked(tmp_path: Path) -> None:
    whole = {"kind": "objects", "required": [], "key": "", "cpu": "", "features": "", "cache_bytes": 0}
    path = tmp_path / "a.objects"
    wrongs = ({"required": 5}, {"required": [[1]]}, {"key": [1]}, {"cpu": None}, {"features": 3}, {"cache_bytes": ""})
    for wrong in wrongs:
        path.write_bytes(pack({**whole, **wrong}, {"x": b"1"}))
        with pytest.raises(InvalidFile, match="has written"):
            give_objects(path)
    path.write_bytes(pack({"kind": "objects"}, {}))
    with pytest.raises(InvalidFile, match="has written"):
        give_objects(path)


def test_deep_and_endless_numbers_are_refused(tmp_path: Path) -> None:
    report, table = tmp_path / "a.json", tmp_path / "a.toml"
    for text in ("[" * 100_000, "9" * 5000, '{"a": NaN}'):
        report.write_text(text)
        with pytest.raises(InvalidFile, match="Expected a report"):
            Report.load(report)
    for text in (
        "a=" + "[" * 20_000,
        "a=" + "9" * 5000,
        "[schedule]\nmultiply_add = inf",
        "[schedule]\nmultiply_add = nan",
    ):
        table.write_text(text)
        with pytest.raises(ConfigurationError, match="Expected"):
            costs.with_file(costs.DEFAULT, table)


def test_paths_with_a_zero_byte_are_refused() -> None:
    for read in (engine.load, read_executable, Report.load):
        with pytest.raises(InvalidFile, match="a zero byte"):
            read("a\0b")
