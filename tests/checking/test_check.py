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
