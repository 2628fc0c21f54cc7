"""Benchmarks of data sets, buffered data sets, and data in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.data.ops.dataset_ops import BufferDataset


def pairs(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(
        lambda i: {"a": tf.cast(i, tf.float32), "b": tf.fill([2, 3], tf.cast(i, tf.int32))}
    )


def check(text: tf.Tensor, epochs: int, elements: int, size: int) -> None:
    assert text.dtype == tf.string
    assert text.shape == [1]
    report = json.loads(text[0].numpy())
    assert len(report["epochs"]) == epochs
    for epoch in report["epochs"]:
        assert epoch["elements_processed"] == elements
        assert epoch["total_bytes_processed"] == elements * size
        assert epoch["elements_per_second"] == pytest.approx(elements / epoch["time_elapsed"])
        assert epoch["bandwidth"] == pytest.approx(elements * size / epoch["time_elapsed"] / 1e9)


@pytest.mark.parametrize("in_graph", [False, True])
def test_dataset_benchmark(in_graph: bool, capsys) -> None:
    def measure():
        return ipu.dataset_benchmark.dataset_benchmark(pairs(12), 3, 4, do_memcpy=in_graph)

    check(tf.function(measure)() if in_graph else measure(), 3, 4, 28)
    assert capsys.readouterr().out.count("Epoch") == 3


def test_dataset_benchmark_in_a_session() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = ipu.dataset_benchmark.dataset_benchmark(pairs(8), 2, 4, print_stats=False)
        (text,) = session.run(result)
    assert [epoch["elements_processed"] for epoch in json.loads(text)["epochs"]] == [4, 4]


def test_infeed_benchmark() -> None:
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(pairs(6).repeat())
    check(ipu.dataset_benchmark.infeed_benchmark(queue, 2, 10, print_stats=False), 2, 10, 28)


def test_what_cannot_be_measured() -> None:
    benchmark = ipu.dataset_benchmark
    with pytest.raises(TypeError, match=r"tf\.data\.Dataset"):
        benchmark.dataset_benchmark([1, 2], 1, 1)
    with pytest.raises(TypeError, match="IPUInfeedQueue"):
        benchmark.infeed_benchmark(pairs(1), 1, 1)
    with pytest.raises(ValueError, match="number_of_epochs"):
        benchmark.dataset_benchmark(pairs(1), 0, 1)
    with pytest.raises(ValueError, match="elements_per_epochs"):
        benchmark.dataset_benchmark(pairs(1), 1, 0)
    with pytest.raises(tf.errors.OutOfRangeError, match=r"ended after 1 of one.*repeat"):
        benchmark.dataset_benchmark(pairs(5), 3, 2, print_stats=False)


@pytest.mark.parametrize(("count", "size", "left"), [(10, 3, 9), (4, 4, 4), (3, 4, 0), (5, 1, 5)])
def test_buffered_datasets_have_multiples(count: int, size: int, left: int) -> None:
    dataset = BufferDataset(pairs(count), size)
    assert dataset.element_spec == pairs(count).element_spec
    assert [int(element["a"]) for element in dataset] == list(range(left))
    assert len(list(BufferDataset(tf.data.Dataset.range(count), size))) == left
    both = tf.data.Dataset.zip((tf.data.Dataset.range(count), pairs(count)))
    assert [(int(i), int(e["b"][1, 2])) for i, e in BufferDataset(both, size)] == [(i, i) for i in range(left)]


def test_buffered_datasets_read_ahead() -> None:
    read = []

    def elements():
        for number in range(100):
            read.append(number)
            yield number

    source = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([], tf.int32))
    iterator = iter(BufferDataset(source, 7))
    assert int(next(iterator)) == 0
    assert len(read) >= 7


def test_buffered_datasets_refuse() -> None:
    with pytest.raises(TypeError, match="input_dataset"):
        BufferDataset([1], 2)
    with pytest.raises(ValueError, match="buffer_size"):
        BufferDataset(pairs(3), 0)


@pytest.mark.parametrize("queued", [False, True])
def test_datasets_in_files(tmp_path, queued: bool) -> None:
    source = ipu.ipu_infeed_queue.IPUInfeedQueue(pairs(8)) if queued else pairs(8)
    ipu.utils.export_dataset_to_file(source, str(tmp_path / "data.bin"), 5, feed_name="train")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.train.0.bin", "data.train.1.bin"]
    np.testing.assert_array_equal(np.load(tmp_path / "data.train.0.bin"), np.arange(5, dtype=np.float32))
    values = np.load(tmp_path / "data.train.1.bin")
    assert values.dtype == np.int32
    np.testing.assert_array_equal(values, np.arange(5)[:, None, None] * np.ones((2, 3), int))


def test_a_dataset_of_tensors_is_one_file(tmp_path) -> None:
    ipu.utils.export_dataset_to_file(tf.data.Dataset.range(3), str(tmp_path / "x.bin"), 3)
    np.testing.assert_array_equal(np.load(tmp_path / "x.bin"), [0, 1, 2])


def test_exports_that_cannot_be(tmp_path) -> None:
    path = str(tmp_path / "x.bin")
    with pytest.raises(ValueError, match=r"one of 3.*Nearest: num_elements=3"):
        ipu.utils.export_dataset_to_file(tf.data.Dataset.range(3), path, 4)
    with pytest.raises(ValueError, match="num_elements"):
        ipu.utils.export_dataset_to_file(tf.data.Dataset.range(3), path, 0)
    with pytest.raises(TypeError, match="IPUInfeedQueue"):
        ipu.utils.export_dataset_to_file([1, 2], path, 1)
    assert not list(tmp_path.iterdir())


def test_inputs_in_files(tmp_path) -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        y = tf.compat.v1.placeholder(tf.int32, [], name="y")
        ipu.utils.export_inputs_to_file([x, y], str(tmp_path / "inputs.bin"), {x: [1, 2], y: 3})
        with pytest.raises(ValueError, match="y:0"):
            ipu.utils.export_inputs_to_file([x, y], str(tmp_path / "other.bin"), {x: [1, 2]})
    with np.load(tmp_path / "inputs.bin") as archive:
        assert {name: value.tolist() for name, value in archive.items()} == {"x:0": [1.0, 2.0], "y:0": 3}
        assert archive["x:0"].dtype == np.float32


def test_initialization_moves_to_the_host() -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/device:IPU:0"):
            variable = tf.compat.v1.get_variable("w", initializer=tf.ones([2]) * 3, use_resource=True)
        assert "IPU" in variable.initializer.device
        assert ipu.utils.move_variable_initialization_to_cpu() is None
        assert variable.initializer.device == "/device:CPU:0"
        assert all("CPU" in tensor.op.device for tensor in variable.initializer.inputs)
        assert graph.get_tensor_by_name("mul:0").op.device == "/device:CPU:0"
    ipu.utils.move_variable_initialization_to_cpu()


@pytest.mark.parametrize(
    ("flags", "infeed", "seed"),
    [
        ("", False, False),
        ("--use_synthetic_data", True, True),
        ("--use_ipu_model --synthetic_data_categories=infeed,outfeed", True, False),
        ("--synthetic_data_categories='seed'", False, True),
    ],
)
def test_synthetic_data(monkeypatch, flags: str, infeed: bool, seed: bool) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    category = ipu.utils.SyntheticDataCategory
    assert ipu.utils.use_synthetic_data_for(category.Infeed) is infeed
    assert ipu.utils.use_synthetic_data_for(category.Seed) is seed
    assert [each.name for each in category] == ["Seed", "Infeed", "Outfeed", "HostEmbedding", "Parameters"]
    with pytest.raises(TypeError, match="SyntheticDataCategory"):
        ipu.utils.use_synthetic_data_for("infeed")


@pytest.mark.parametrize("is_infeed", [False, True])
def test_datasets_of_a_graph_are_written(tmp_path: Path, is_infeed: bool) -> None:
    with tf.Graph().as_default():
        dataset: object = pairs(3)
        if is_infeed:
            dataset = ipu.ipu_infeed_queue.IPUInfeedQueue(pairs(3))
        ipu.utils.export_dataset_to_file(dataset, str(tmp_path / "data.bin"), 2)
    np.testing.assert_array_equal(np.load(tmp_path / "data.0.bin"), np.float32([0, 1]))
    np.testing.assert_array_equal(np.load(tmp_path / "data.1.bin"), np.int32([[[0] * 3] * 2, [[1] * 3] * 2]))
