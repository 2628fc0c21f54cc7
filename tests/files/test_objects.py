"""Programs compiled ahead of time run in a process that has NumPy and the engine alone."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from engine import aot
from engine.errors import ConfigurationError, InternalError, InvalidFile
from engine.files.container import pack, parse, unpack
from engine.files.executable_file import ExecutableFile, write_executable
from engine.files.objects import KEY, give_objects, write_objects
from engine.ir.builder import Builder
from engine.machine_code import elf, given_objects, instruction_sets, processor
from engine.machine_code.given_objects import ObjectOrigin
from engine.machine_code.optimising import Pipeline, compile_text
from engine.runtime.encoded_file import FORMAT, _at_home
from tests.files.programs import signature
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(not processor.X86, reason="objects are of x86-64")
BARE = """
import os, sys
import numpy as np, engine
from engine.errors import ConfigurationError
program, objects, x, y = sys.argv[1:]
child = os.fork()
if not child:
    try:
        engine.load(program)
    except ConfigurationError as error:
        os._exit("python -m engine.aot" not in str(error))
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0, "expected an error that names the command"
loaded = engine.load(program, objects=objects)
np.save(y, loaded.run([np.load(x)])[0])
assert not {"numba", "llvmlite", "tensorflow", "keras"} & sys.modules.keys()
lowering = ("engine.compile", "engine.emit", "engine.lower", "engine.ops", "engine.passes", "engine.files.checks")
assert not any(name.startswith(lowering) for name in sys.modules)
"""
TEXT = """
@table = private constant [2 x double] [double 1.0, double 2.0]
declare double @cos(double)
declare double @given(double)
define double @sum(i64 %at, double %x) {
  %place = getelementptr [2 x double], ptr @table, i64 0, i64 %at
  %a = load double, ptr %place
  %b = call double @cos(double %x)
  %c = call double @given(double %x)
  %ab = fadd double %a, %b
  %abc = fadd double %ab, %c
  ret double %abc
}
"""


def run(*command: object, **variables: str) -> None:
    done = subprocess.run(
        [*map(str, command)],
        cwd="/",
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_numpy_and_the_engine_are_enough(tmp_path: Path) -> None:
    builder = (
        Builder()
    )  # a product, a fused nest, and conversions of halves, which --cpu x86-64 has no instructions for
    x, w = builder.parameter("f16", (9, 5)), builder.parameter("f16", (5, 7))
    module = builder.module(builder.tuple(builder.elementwise("tanh", builder.dot(x, w))))
    rng = np.random.default_rng(0)
    inputs, weights = rng.normal(size=(9, 5)).astype(np.float16), rng.normal(size=(5, 7)).astype(np.float16)
    program, objects = tmp_path / "p.popef", tmp_path / "p.x86-64.objects"
    write_executable(
        program, ExecutableFile(module, ["feed", "constant"], {1: weights}, signature(module, ["x"], ["y"]))
    )
    run(sys.executable, "-m", "engine.aot", program, "--cpu", "x86-64", PYTHONPATH=os.pathsep.join(sys.path))
    site = tmp_path / "site"
    site.mkdir()
    (site / "engine").symlink_to(ROOT / "engine")
    for name in ("numpy", "ml_dtypes"):
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        for part in Path(spec.origin).parent.parent.glob(f"{name}*"):  # also numpy.libs
            (site / part.name).symlink_to(part)
    np.save(tmp_path / "x.npy", inputs)
    bare = f"import sys; sys.path.insert(0, {str(site)!r})\n{BARE}"
    run(sys.executable, "-I", "-S", "-c", bare, program, objects, tmp_path / "x.npy", tmp_path / "y.npy")
    expected = np.tanh(inputs.astype(np.float32) @ weights.astype(np.float32))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy").astype(np.float32), expected, atol=2e-3)


def test_objects_link_to_each_other_and_to_the_c_library() -> None:
    given = "define double @given(double %x) {\n %y = fmul double %x, 3.0\n ret double %y\n}"
    given_code, code = compile_text(given), compile_text(TEXT, Pipeline(level=1, loops=False))
    elf.link([given_code])
    for objects in ([code], [code, given_code]):
        call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(elf.link(objects)["sum"])
        assert call(1, 0.5) == 2.0 + np.cos(0.5) + 1.5


def test_memory_of_objects_is_not_written_to() -> None:
    text = "@count = global i64 3\ndefine i64 @counted() {\n %n = load i64, i64* @count\n ret i64 %n\n}"
    with pytest.raises(InternalError, match="a section that is written to"):
        elf.link([compile_text(text)])


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "a.popef"
    builder = Builder()
    module = builder.module(builder.tuple(builder.parameter("f32", (2,))))
    write_executable(other, ExecutableFile(module, ["feed"], {}, signature(module, ["x"], ["y"])))
    with pytest.raises(InvalidFile, match=r"engine\.aot"):
        give_objects(other)
    objects = tmp_path / "a.objects"
    write_objects(objects, ObjectOrigin("key", "x86-64-v4", "+avx512f", 1 << 21), {}, ["avx512f"])
    monkeypatch.setattr(instruction_sets, "flags", lambda: frozenset({"avx2"}))
    with pytest.raises(ConfigurationError, match="avx512f"):
        give_objects(objects)
    (tmp_path / "assets").mkdir()
    assert aot.main([str(tmp_path)]) == 1
    assert "Expected one program" in capsys.readouterr().err


ORIGIN = ObjectOrigin("key", "x86-64", "", 1 << 19)


def test_signatures_are_required_where_there_is_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, bytes]] = []
    monkeypatch.setattr(given_objects, "give", lambda origin, objects: given.append(objects))
    plain, signed, other = (tmp_path / name for name in ("plain", "signed", "other"))
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 32 + "\n")
        (tmp_path / name).chmod(0o600)
    write_objects(plain, ORIGIN, {"o": b"1"}, [])
    give_objects(plain)
    for key, path in (("a", signed), ("b", other)):
        monkeypatch.setenv(KEY, str(tmp_path / key))
        write_objects(path, ORIGIN, {"o": b"1"}, [])
    monkeypatch.setenv(KEY, str(tmp_path / "a"))
    give_objects(signed)
    signed.chmod(0o666)
    give_objects(signed)
    assert given == [{"o": b"1"}] * 3
    header, sections = unpack(signed.read_bytes(), "a file")
    altered = tmp_path / "altered"
    for changed, objects in (({**header, "cpu": "x"}, sections), (header, {"o": b"2"}), (header, {"p": b"1"})):
        altered.write_bytes(pack(changed, {name: bytes(content) for name, content in objects.items()}))
        with pytest.raises(InvalidFile, match=f"signed with the key in {KEY}. Received: another signature"):
            give_objects(altered)
    with pytest.raises(InvalidFile, match="another signature"):
        give_objects(other)
    with pytest.raises(InvalidFile, match="Received: no signature"):
        give_objects(plain)
    assert len(given) == 3


def test_object_code_that_others_may_have_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.objects"
    write_objects(path, ORIGIN, {}, [])
    assert not path.stat().st_mode & 0o022
    path.chmod(0o664)
    with pytest.raises(InvalidFile, match="only you can have written.*others may write to it"):
        give_objects(path)


@pytest.mark.parametrize("kind", ["missing", "short", "shared"])
def test_keys_are_checked(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    monkeypatch.setenv(KEY, str(path))
    if kind != "missing":
        path.write_text("k" * (3 if kind == "short" else 32))
        path.chmod(0o600 if kind == "short" else 0o666)
    with pytest.raises(ConfigurationError, match=KEY):
        write_objects(tmp_path / "a.objects", ORIGIN, {}, [])


def test_no_pickle_is_in_a_file_of_objects(tmp_path: Path) -> None:
    builder = Builder()
    x = builder.parameter("f32", (9, 5))
    product = builder.elementwise("tanh", builder.dot(x, builder.transpose(x, (1, 0))))
    module = builder.module(builder.tuple(product, builder.reduce(product, builder.constant(0.0), (1,))))
    program, objects = tmp_path / "p.popef", tmp_path / "p.objects"
    write_executable(program, ExecutableFile(module, ["feed"], {}, signature(module, ["x"], ["y", "s"])))
    aot.compile_ahead(program, objects)
    _, sections = unpack(objects.read_bytes(), "a file")
    (name,) = (each for each in sections if each.startswith("programs/"))
    values = parse(unpack(bytes(sections[name]), "a file")[1]["values"], "a file")
    kinds = {entry[0] for entry in values["table"]}
    assert {"EncodedFile", "Encoded", "Buffer"} <= kinds
    assert kinds <= {"tuple", "list", "dict", "float", "dtype", "foreign", "array", *FORMAT.classes}
    for damaged in (
        [["eval", "1"]],
        [["Buffer"]],
        [["tuple", [0]]],
        [["tuple", [-1]]],
        [3],
        [["foreign", ["array", 2**70]]],
    ):
        content = pack({}, {"values": json.dumps({"root": [0], "table": damaged}).encode(), "arrays": b""})
        with pytest.raises(InvalidFile, match="Expected an encoded program"):
            FORMAT.from_bytes(content, "a file", lambda reference: _at_home(reference, b""))
