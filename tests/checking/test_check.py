"""`python -m ipu.check` on short old programs: each finding with its line, and nothing else; and the command."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import pytest

from ipu._internal.checking.command import check, main
from ipu._internal.checking.old_names import LAYER_ARGUMENTS, MODULES
from tests.checking.old_programs import KERAS_24, POPDIST, PROGRAMS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", PROGRAMS)
def test_old_programs(name: str) -> None:
    source, expected, works = PROGRAMS[name]
    result = check(source)
    found = [(each["line"], each["level"], each["name"], each["advice"]) for each in result["findings"]]
    assert [(line, level) for line, level, *_ in found] == [(line, level) for line, level, *_ in expected], found
    for (_, _, what, advice), (_, _, part_of_what, part_of_advice) in zip(found, expected, strict=True):
        assert part_of_what in what
        assert part_of_advice in advice
    assert set(works) <= set(result["works"])


@pytest.mark.parametrize("name", ["digits", "pipeline", "report", "tensorflow1", "custom_vertex"])
def test_own_examples_run_as_they_are(name: str) -> None:
    result = check((ROOT / "examples" / f"{name}.py").read_text())
    assert [each for each in result["findings"] if each["level"] != "note"] == []
    assert result["works"]


def test_keras_refuses_what_the_table_says() -> None:
    layers = {"fused": keras.layers.BatchNormalization, "time_major": keras.layers.LSTM}
    for argument in LAYER_ARGUMENTS:
        sizes = () if argument == "fused" else (3,)
        with pytest.raises(ValueError, match=argument):
            layers.get(argument, keras.layers.Dense)(*sizes, **{argument: True})
    with pytest.raises(ValueError, match="lr"):
        keras.optimizers.SGD(lr=0.1)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.py").write_text("from tensorflow.python import ipu\nipu.config.IPUConfig()\n")
    assert main([str(tmp_path)]) == 0
    assert "good.py: 0 refused, 0 change, 0 note; 1 name works: ipu.config.IPUConfig\n" in capsys.readouterr().out
    (tmp_path / "old.py").write_text(POPDIST)
    assert main([str(tmp_path), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == [str(tmp_path / "good.py"), str(tmp_path / "old.py")]
    assert printed[str(tmp_path / "old.py")]["findings"][0] == {
        "line": 1,
        "level": "refused",
        "name": "popart",
        "advice": MODULES["popart"][1],
    }
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "absent.py")])


def test_equal_advice_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "old.py"
    program.write_text("import tensorflow as tf\nwith tf.Session() as session:\n    tf.placeholder(tf.float32)\n")
    assert main([str(program)]) == 1
    first, summary = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{program}:2: change: tf.Session, tf.placeholder (also line 3): It is a name of")
    assert "2 change" in summary


def test_names_of_a_class_and_of_the_older_keras_are_no_findings() -> None:
    source = """
from tensorflow.python.ipu import config
import tf_keras
class A:
    @property
    def config(self):
        return config.nothing
    @config.setter
    def config(self, value):
        tf_keras.Sequential().fit(workers=2)
"""
    assert [(each["line"], each["name"]) for each in check(source)["findings"]] == [(7, "ipu.config.nothing")]


def test_programs_are_not_run() -> None:
    assert check(f"{KERAS_24}\nraise SystemExit(3)\n")["findings"]


def names_of(source: str) -> list[tuple[int, str]]:
    """The findings that need a change, by line and name."""
    return [(each["line"], each["name"]) for each in check(source)["findings"] if each["level"] != "note"]


def test_values_with_the_name_of_an_import_are_no_findings() -> None:
    source = """
import tensorflow.compat.v1 as tf
from tensorflow.keras import layers
from tensorflow.python.framework import ops
from tensorflow.python import ipu

def loops(x):
    for layers in x:
        layers.sort()
    with open("x") as ops:
        ops.append(1)
    return [layers.sort() for layers in x], layers.count(1)

def alias():
    layers = tf.keras.layers
    return layers.Nothing

def unknown(layers):
    def inner():
        return layers.sort()
    return inner, ops.nowhere

ipu = make()
ipu.nothing(loops, alias, unknown)
try:
    from tensorflow.keras import models
except ImportError:
    models = None
models.nothing()
"""
    assert names_of(source) == [(16, "tf.compat.v1.keras.layers.Nothing"), (21, "tf.python.framework.ops.nowhere")] + [
        (29, "tf.keras.models.nothing")
    ]


@pytest.mark.parametrize(
    "leaves", ["tf.disable_v2_behavior()", "tf.disable_eager_execution()", "g = tf.Graph().as_default()", ""]
)
def test_sessions_need_graphs(leaves: str) -> None:
    source = (
        f"import tensorflow.compat.v1 as tf\n{leaves}\nwith tf.Session() as s:\n    s.run(tf.placeholder('float'))\n"
    )
    findings = check(source)["findings"]
    assert [each["line"] for each in findings] == ([] if leaves else [3])
    assert leaves or "tf.disable_v2_behavior()" in findings[0]["advice"] and "--tf1" in findings[0]["advice"]


def test_version_1_has_its_methods_and_arguments() -> None:
    source = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
it = tf.data.Dataset.range(3).make_initializable_iterator()
other = tf.data.Dataset.range(3).make_one_shot_iterator()
x = tf.reduce_sum(it.get_next(), reduction_indices=[0], keep_dims=True)
"""
    assert names_of(source) == []
    assert names_of(source.replace("tf.disable_v2_behavior()", "")) == [
        (4, ".make_initializable_iterator()"),
        (5, ".make_one_shot_iterator()"),
    ]


def test_refused_calls_do_not_work_and_advice_is_not_circular() -> None:
    source = "from tensorflow.python import ipu\nipu.custom_ops.precompiled_user_op([], 'x.so')\n"
    result = check(source)
    assert result["works"] == ["ipu"] and result["findings"][0]["level"] == "refused"
    (found,) = check("from tensorflow.python.keras.preprocessing import image\n")["findings"]
    assert "Write tf_keras.preprocessing.image" in found["advice"]
    assert check("from tf_keras.preprocessing import image\n")["findings"] == []


def test_notebooks_and_files_beside_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("from .model import net\n")
    (package / "model.py").write_text("import tensorflow as tf\nnet = tf.get_variable\n")
    (tmp_path / "helper.py").write_text("from tensorflow.contrib import ipu\n")
    (tmp_path / "main.py").write_text("import helper, absent_module\nfrom parts import net\nimport json\n")
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install x\n", "import tensorflow as tf"]},
        {"cell_type": "code", "source": "if True:\n    %timeit 1\ntf.Session()"},
        {"cell_type": "code", "source": ["%%bash\n", "echo ((\n"]},
    ]
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells}))
    assert main([str(tmp_path / "main.py"), str(tmp_path / "book.ipynb"), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    found = {Path(path).name: [(e["line"], e["name"]) for e in each["findings"]] for path, each in printed.items()}
    assert found == {
        "main.py": [(1, "absent_module")],
        "book.ipynb": [(6, "tf.Session")],
        "helper.py": [(1, "tf.contrib.ipu")],
        "__init__.py": [],
        "model.py": [(2, "tf.get_variable")],
    }
