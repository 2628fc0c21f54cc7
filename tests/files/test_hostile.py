"""Files made by somebody who means harm: with right checksums, and programs that are none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidFile
from engine.files.container import pack, unpack
from engine.files.executable_file import from_bytes, to_bytes
from tests.exploring import examples
from tests.files.programs import classifier
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


@pytest.mark.parametrize("change", [huge, outside, of_itself, deep, unknown, other_role, not_a_number])
def test_lies_are_named(change: Any) -> None:
    with pytest.raises(InvalidFile, match="Expected a valid executable in a file"):
        from_bytes(sealed(change), "a file")


def test_nothing_has_changed_without_a_change() -> None:
    assert from_bytes(sealed(lambda header, program: None), "a file").roles == classifier().roles


def test_nesting_without_end_is_refused() -> None:
    header, sections = unpack(to_bytes(classifier()), "a file")
    text = b"[" * 200_000 + b"]" * 200_000
    with pytest.raises(InvalidFile, match="JSON"):
        from_bytes(pack(header, {"program": text, "arrays": bytes(sections["arrays"])}), "a file")
