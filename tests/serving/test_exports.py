"""Results of exports, their names and weights, on the engine and in TensorFlow without this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine import load
from engine.serving.manifest import read_manifest
from ipu import serving
from ipu._internal.compiler.graph_structure import nested_operations
from ipu.embedded_runtime import embedded_runtime_call, embedded_runtime_start
from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1
from tests.interrupting import HANGS_SECONDS
from tests.keras.helpers import FEATURES, MODELS, Kit, assert_close, data

BATCH = 4
OTHER_PROCESS = textwrap.dedent("""
    import json, sys
    sys.meta_path[:] = [finder for finder in sys.meta_path if "AliasFinder" not in repr(finder)]
    for name in [*sys.modules]:
        if name in ("_ipu_hook", "_ipu_names", "ipu", "engine", "keras_ext"):
            del sys.modules[name]
    for name in ("ipu", "engine", "keras_ext", "_ipu_hook", "keras", "tf_keras"):
        sys.modules[name] = None
    import numpy as np
    import tensorflow as tf
    function = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
    values = json.loads(sys.stdin.read())
    given = {}
    for name, spec in function.structured_input_signature[1].items():
        given[name] = tf.constant(values[name], spec.dtype, spec.shape)
    results = {name: np.asarray(value).tolist() for name, value in function(**given).items()}
    print(json.dumps(results))
""")


def elsewhere(directory: Path, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Results of the SavedModel in a process that can import neither this package nor any Keras."""
    values = {name: np.asarray(value).tolist() for name, value in inputs.items()}
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""}
    made = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(directory)],
        input=json.dumps(values),
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
    )
    assert made.returncode == 0, made.stderr
    return {name: np.array(value) for name, value in json.loads(made.stdout).items()}


def on_engine(directory: Path, *arrays: Any) -> list[np.ndarray]:
    """Results of the compiled program in the assets."""
    return load(directory / "assets" / read_manifest(directory).executable).run(list(arrays))


def in_tensorflow(directory: Path, **inputs: Any) -> dict[str, Any]:
    """Results of the default signature in this process."""
    function = tf.saved_model.load(str(directory)).signatures["serving_default"]
    return {name: value.numpy() for name, value in function(**{k: tf.constant(v) for k, v in inputs.items()}).items()}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_predict(name: str, kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model(getattr(kit, name))
    with IPUStrategy().scope():
        model.build((None, FEATURES))
    features, labels = data(BATCH)
    model.fit(features, labels, epochs=2, verbose=0)
    expected = model.predict(features, verbose=0)
    run = model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=BATCH)
    [tensor] = read_manifest(tmp_path / "1").inputs
    for result in (run(features), run(tf.constant(features)), run(**{tensor.name: features})):
        assert_close(result, [expected])
    assert_close(on_engine(tmp_path / "1", features), [expected])
    assert_close(in_tensorflow(tmp_path / "1", **{tensor.name: features}), {"output_0": expected})


def test_a_process_without_this_package_gets_the_same_numbers(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model(kit.functional)
    features, _ = data(BATCH)
    model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=BATCH, output_names="classes")
    [tensor] = read_manifest(tmp_path / "1").inputs
    results = elsewhere(tmp_path / "1", {tensor.name: features})
    assert_close(results, {"classes": model.predict(features, verbose=0)})


def test_the_embedded_runtime_runs_what_is_in_the_assets(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model()
    features, _ = data(BATCH)
    expected = model.predict(features, verbose=0)
    model.export_for_ipu_serving(str(tmp_path), batch_size=BATCH)
    [path] = (tmp_path / "assets").glob("application_*.popef")
    context = embedded_runtime_start(str(path), [], f"served_{kit.keras.__name__}")
    [result] = embedded_runtime_call([features], context)
    assert_close(result, expected)


def test_weights_are_those_at_the_time_of_export(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model()
    features, _ = data(BATCH)
    expected = model.predict(features, verbose=0)
    run = serving.export_keras(model, str(tmp_path), batch_size=BATCH)
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    assert_close(run(features), [expected])
    assert_close(on_engine(tmp_path, features), [expected])
    assert np.abs(model.predict(features, verbose=0) - expected).max() > 1e-3


def test_several_inputs_and_outputs_keep_names_and_order(kit: Kit, tmp_path: Path, strategy: IPUStrategyV1) -> None:
    layers = kit.keras.layers
    with strategy.scope():
        second, first = (kit.keras.Input((2,), batch_size=3, name=name) for name in ("z", "a"))
        total = layers.Add()([second, first])
        model = kit.keras.Model([second, first], [layers.Subtract()([second, first]), total])
    run = model.export_for_ipu_serving(str(tmp_path), output_names=["difference", "sum"])
    z, a = np.full((3, 2), 5, np.float32), np.full((3, 2), 2, np.float32)
    assert_close(run(z, a), {"difference": z - a, "sum": z + a})
    assert_close(on_engine(tmp_path, z, a), [z - a, z + a])
    assert_close(in_tensorflow(tmp_path, z=z, a=a), {"difference": z - a, "sum": z + a})
    assert [tensor.name for tensor in read_manifest(tmp_path).inputs] == ["z", "a"]


def test_text_before_and_after_the_program(kit: Kit, tmp_path: Path, strategy: IPUStrategyV1) -> None:
    model = kit.ipu_model()
    words = tf.constant(["a", "b", "c"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.constant([1.0, 2.0, 3.0])), -1.0)
    names = tf.constant(["left", "middle", "right"])

    def tokens(text: tf.Tensor) -> tf.Tensor:
        return tf.tile(table.lookup(text)[:, None], [1, FEATURES])

    @tf.function(input_signature=[tf.TensorSpec((BATCH, 3), tf.float32)])
    def named(probabilities: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(names, tf.argmax(probabilities, -1)), tf.reduce_max(probabilities, -1)

    run = model.export_for_ipu_serving(
        str(tmp_path),
        batch_size=BATCH,
        output_names=["label", "probability"],
        preprocessing_step=tokens,
        preprocessing_step_signature=[tf.TensorSpec((BATCH,), tf.string)],
        postprocessing_step=named,
    )
    text = ["a", "c", "b", "?"]
    features = np.repeat(np.array([[1], [3], [2], [-1]], np.float32), FEATURES, axis=1)
    probabilities = model.predict(features, verbose=0)
    labels = [names.numpy()[row.argmax()].decode() for row in probabilities]
    signature = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    results = [run(tf.constant(text)), strategy.run(run, (tf.constant(text),))]
    results += [strategy.run(signature, kwargs={"text": tf.constant(text)}) for _ in range(2)]
    [graph] = {traced.graph for traced in signature._ipu_exported._list_all_concrete_functions()}
    assert "MatMul" not in {operation.type for operation in graph.get_operations()}
    for result in results:
        assert [value.decode() for value in result["label"].numpy()] == labels
        assert_close(result["probability"], probabilities.max(-1))
    manifest = read_manifest(tmp_path)
    assert [(tensor.name, tensor.dtype) for tensor in manifest.inputs] == [("text", "string")]
    assert_close(on_engine(tmp_path, features), [probabilities])
    there = in_tensorflow(tmp_path, text=text)
    assert [value.decode() for value in there["label"]] == labels
    assert_close(there["probability"], probabilities.max(-1))


def test_single_steps_take_functions_of_variables(tmp_path: Path, strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        weight = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    def predict(x: tf.Tensor, shift: tf.Tensor) -> dict[str, tf.Tensor]:
        if tf.reduce_sum(shift) > 10.0:
            shift = tf.zeros_like(shift)
        return {"b": tf.matmul(x, weight) + shift, "a": tf.cast(x, tf.int32)}

    signature = [tf.TensorSpec((1, 2), tf.float32), tf.TensorSpec((2,), tf.float32)]
    run = serving.export_single_step(predict, str(tmp_path), 4, signature)
    weight.assign(tf.zeros((2, 2)))
    signed = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    x = np.array([[1.0, 1.0]], np.float32)
    for shift, expected in ((1.0, [[5.0, 7.0]]), (6.0, [[4.0, 6.0]])):
        first, second = run(x, np.full(2, shift, np.float32))
        np.testing.assert_array_equal(first, [[1, 1]])
        np.testing.assert_array_equal(second, expected)
        there = in_tensorflow(tmp_path, x=x, shift=np.full(2, shift, np.float32))
        np.testing.assert_array_equal(there["output_1"], expected)
        arguments = {"x": x, "shift": np.full(2, shift, np.float32)}
        np.testing.assert_array_equal(strategy.run(run, kwargs=arguments)[1], expected)
        np.testing.assert_array_equal(strategy.run(signed, kwargs=arguments)["output_1"], expected)
    assert read_manifest(tmp_path).iterations == 4


def test_programs_in_branches_and_loops_of_a_signature(tmp_path: Path, strategy: IPUStrategy) -> None:
    serving.export_single_step(lambda x: 2 * x + 1, str(tmp_path / "1"), 4, [tf.TensorSpec((2,), tf.float32)])
    signed = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]

    def program(x: tf.Tensor) -> tf.Tensor:
        return signed(x)["output_0"]

    module = tf.Module()
    module.signed = signed

    @tf.function(input_signature=[tf.TensorSpec((2,), tf.float32, "x"), tf.TensorSpec((), tf.int32, "k")])
    def run(x: tf.Tensor, k: tf.Tensor) -> dict[str, tf.Tensor]:
        branch = tf.cond(tf.equal(k, 0), lambda: program(x), lambda: -x)
        case = tf.switch_case(k, [lambda: x, lambda: program(x) - 1, lambda: program(program(x))])
        loop = tf.while_loop(lambda i, _: i < k, lambda i, y: (i + 1, program(y)), [0, x])
        return {"branch": branch, "case": case, "loop": loop[1]}

    module.run = run
    tf.saved_model.save(module, str(tmp_path / "2"), signatures=run)
    signature = tf.saved_model.load(str(tmp_path / "2")).signatures["serving_default"]
    x = np.array([1.0, -2.0], np.float32)
    for k, case in enumerate((x, 2 * x, 4 * x + 3)):
        results = strategy.run(signature, kwargs={"x": tf.constant(x), "k": tf.constant(k)})
        np.testing.assert_array_equal(results["branch"], -x if k else 2 * x + 1)
        np.testing.assert_array_equal(results["case"], case)
        np.testing.assert_array_equal(results["loop"], 2**k * (x + 1) - 1)
    [graph] = {traced.graph for traced in signature._ipu_exported._list_all_concrete_functions()}
    inside = {each.type for each, _ in nested_operations(graph.get_operations())}
    assert "PyFuncStateless" in inside and "Mul" not in inside


def test_signatures_of_data_sets_and_functions(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensors((np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)))
    run = serving.export_single_step(lambda x, y: x - y, str(tmp_path / "1"), 1, input_dataset=dataset)
    np.testing.assert_array_equal(
        run(np.full((2, 3), 3.0, np.float32), np.ones((2, 3), np.float32)), [np.full((2, 3), 2)]
    )
    columns = tf.data.Dataset.from_tensors({"x": np.ones((2, 3), np.float32), "scale": np.int32(1)})
    run = serving.export_single_step(
        lambda scale, x: tf.cast(scale, tf.float32) * x, str(tmp_path / "3"), tf.constant(2), input_dataset=columns
    )
    np.testing.assert_array_equal(run(scale=3, x=np.ones((2, 3), np.float32)), [np.full((2, 3), 3)])
    function = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec((2,), tf.int32)])
    run = serving.export_single_step(function, str(tmp_path / "2"), 1)
    np.testing.assert_array_equal(run(np.array([1, 2], np.int32)), [[2, 4]])


def test_input_data_sets_are_of_the_preprocessing_step(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensors((tf.constant(["1", "2"]), tf.constant([[3.0], [4.0]])))

    def parsed(text: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_number(text)[:, None] * scale

    for name, signature in (("1", None), ("2", [tf.TensorSpec((2, 1), tf.float32)])):
        run = serving.export_single_step(
            lambda x: x + 1,
            str(tmp_path / name),
            1,
            predict_step_signature=signature,
            input_dataset=dataset,
            preprocessing_step=parsed,
        )
        np.testing.assert_array_equal(run(tf.constant(["5", "6"]), np.ones((2, 1), np.float32)), [[[6], [7]]])
        assert [tensor.name for tensor in read_manifest(tmp_path / name).inputs] == ["text", "scale"]


def test_a_batch_size_given_replaces_that_of_the_model(kit: Kit, tmp_path: Path, strategy: IPUStrategyV1) -> None:
    layers = kit.keras.layers
    with strategy.scope():
        first, second = (kit.keras.Input((6,), batch_size=3, name=name) for name in "ab")
        model = kit.keras.Model([first, second], layers.Dense(2)(layers.Reshape((3, 2))(layers.Add()([first, second]))))
        model.compile()
    a, b = (np.random.default_rng(seed).normal(size=(5, 6)).astype(np.float32) for seed in (0, 1))
    expected = model.predict_on_batch([a, b])
    run = model.export_for_ipu_serving(str(tmp_path), batch_size=tf.constant(5), output_names=("z",))
    assert_close(run(a, b), {"z": expected})
    assert_close(on_engine(tmp_path, a, b), [expected])
    assert [tensor.shape for tensor in read_manifest(tmp_path).inputs] == [(5, 6), (5, 6)]
    with strategy.scope():
        subclassed = kit.Subclassed()
        subclassed.build((3, FEATURES))
    run = subclassed.export_for_ipu_serving(str(tmp_path), np.array(2), purge_export_dir=True)
    assert run.input_signature[0].shape == (2, FEATURES)


def test_pipelines_are_the_composition_of_their_stages(tmp_path: Path, strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        weight = tf.Variable(3.0)

    def first(scale: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return scale * x, y

    def second(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return x * weight + y

    run = serving.export_pipeline(
        [first, second],
        str(tmp_path),
        iterations=4,
        inputs=[2.0],
        device_mapping=[1, 0],
        predict_step_signature=[tf.TensorSpec((2,), tf.float32)] * 2,
        output_names="z",
    )
    x, y = np.array([1, 2], np.float32), np.array([10, 20], np.float32)
    np.testing.assert_array_equal(run(x, y)["z"], [16, 32])
    np.testing.assert_array_equal(in_tensorflow(tmp_path, x=x, y=y)["z"], [16, 32])
    manifest = read_manifest(tmp_path)
    assert manifest.pipeline is not None
    assert (manifest.pipeline.device_mapping, manifest.pipeline.schedule) == ((1, 0), "Grouped")


def test_a_purge_replaces_what_was_there(kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "old").write_text("old")
    model = kit.ipu_model()
    with pytest.raises(ValueError, match="purge_export_dir=True"):
        model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=1)
    with pytest.raises(ValueError, match="output_names"):
        model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=1, output_names=["a", "b"], purge_export_dir=True)
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["old"]
    with pytest.raises(ValueError, match="Expected purge_export_dir to be True or False. Received: 'no'."):
        model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=1, purge_export_dir="no")
    model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=1, purge_export_dir=True)
    assert "old" not in [path.name for path in (tmp_path / "1").iterdir()]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_runtime_functions_work_inside_other_functions(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model()
    run = model.export_for_ipu_serving(str(tmp_path), batch_size=BATCH)
    features, _ = data(BATCH)
    doubled = tf.function(lambda x: 2.0 * run(x)[0])
    assert_close(doubled(tf.constant(features)), 2 * model.predict(features, verbose=0))
