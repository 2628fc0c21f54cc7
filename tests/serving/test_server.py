"""The server against TensorFlow Serving's REST API: answers, errors, many clients at once, hostile input."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.serving.limits import ClientLimits
from ipu.ipu_strategy import IPUStrategy
from tests.interrupting import PATIENCE_SECONDS, wait_for
from tests.keras.helpers import TOLERANCE, Kit
from tests.serving.helpers import BATCH, FEATURES, PATIENT, Client, export_mlp, running, samples


def test_status_and_metadata(client: Client) -> None:
    expected = {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in (client.root, f"{client.root}/versions/3"):
        assert client.request("GET", path) == (200, {"model_version_status": [expected]})
        status, answer = client.request("GET", f"{path}/metadata")
        assert status == 200
        assert answer["model_spec"] == {"name": "mlp", "signature_name": "", "version": "3"}
        signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        [(name, info)] = signature["inputs"].items()
        assert (name, info["dtype"]) == ("features", "DT_FLOAT")
        assert [dimension["size"] for dimension in info["tensor_shape"]["dim"]] == ["-1", str(FEATURES)]
        assert list(signature["outputs"]) == ["output_0"]


@pytest.mark.parametrize("rows", [1, 3, BATCH, BATCH + 1, 5 * BATCH + 3])
def test_predictions_are_those_of_predict(rows: int, client: Client, mlp: tuple[Path, Any]) -> None:
    features = samples(rows)
    expected = mlp[1].predict(features, verbose=0)
    listed = features.tolist()
    in_rows = [{"instances": listed}, {"instances": [{"features": row} for row in listed]}]
    in_columns = [{"inputs": listed}, {"inputs": {"features": listed}, "signature_name": "serving_default"}]
    for bodies, key in ((in_rows, "predictions"), (in_columns, "outputs")):
        for body in bodies:
            status, answer = client.predict(body)
            assert (status, list(answer)) == (200, [key])
            np.testing.assert_allclose(answer[key], expected, rtol=TOLERANCE, atol=TOLERANCE)
    status, answer = client.request("POST", f"{client.root}/versions/3:predict", in_rows[0])
    assert status == 200
    np.testing.assert_allclose(answer["predictions"], expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_several_inputs_outputs_and_integers(kit: Kit, tmp_path: Path) -> None:
    layers = kit.keras.layers
    with IPUStrategy().scope():
        number, weight = kit.keras.Input((), dtype="int32", name="number"), kit.keras.Input((2,), name="weight")
        looked_up = layers.Embedding(4, 2)(number)
        model = kit.keras.Model([number, weight], [looked_up, layers.Add()([looked_up, weight])])
    model.export_for_ipu_serving(str(tmp_path / "two" / "1"), batch_size=4, output_names=["row", "sum"])
    numbers, weights = np.array([3, 0, 1]), np.ones((3, 2), np.float32)
    row, total = model.predict([numbers, weights], verbose=0)
    with running(tmp_path / "two") as client:
        columns = {"number": numbers.tolist(), "weight": weights.tolist()}
        status, answer = client.predict({"inputs": columns})
        assert (status, sorted(answer["outputs"])) == (200, ["row", "sum"])
        np.testing.assert_allclose(answer["outputs"]["row"], row, rtol=TOLERANCE)
        np.testing.assert_allclose(answer["outputs"]["sum"], total, rtol=TOLERANCE)
        status, answer = client.predict({"instances": [{k: v[i] for k, v in columns.items()} for i in range(3)]})
        assert status == 200
        np.testing.assert_allclose([each["sum"] for each in answer["predictions"]], total, rtol=TOLERANCE)
        for wrong in ([1.5], [2**31], [True], ["1"], [None], [float("nan")]):
            status, answer = client.predict({"inputs": {"number": wrong, "weight": [[1.0, 1.0]]}})
            assert (status, list(answer)) == (400, ["error"]), wrong
        status, answer = client.predict({"inputs": {"number": [1, 2], "weight": [[1.0, 1.0]]}})
        assert status == 400 and "one batch size" in answer["error"]


HOSTILE: dict[str, Any] = {
    "empty": b"",
    "no json": b"{]",
    "no utf-8": b"\xff\xfe{}",
    "a list": [1],
    "null": b"null",
    "deep": b"[" * 200_000,
    "deep instances": b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "neither": {"examples": []},
    "both": {"instances": [[0.0] * FEATURES], "inputs": [[0.0] * FEATURES]},
    "another signature": {"signature_name": "train", "instances": [[0.0] * FEATURES]},
    "a signature of another type": {"signature_name": {"a": 1}, "instances": [[0.0] * FEATURES]},
    "no instances": {"instances": []},
    "no list": {"instances": 3},
    "too short": {"instances": [[0.0] * (FEATURES - 1)]},
    "too deep": {"instances": [[[0.0] * FEATURES]]},
    "ragged": {"instances": [[0.0] * FEATURES, [0.0]]},
    "scalar": {"inputs": 1.0},
    "empty column": {"inputs": []},
    "strings": {"instances": [["a"] * FEATURES]},
    "null values": {"instances": [[None] * FEATURES]},
    "objects": {"instances": [[{}] * FEATURES]},
    "booleans": {"instances": [[True] * FEATURES]},
    "too large a number": {"instances": [[1e300] * FEATURES]},
    "too large an integer": {"instances": [[10**50] * FEATURES]},
    "an integer of many digits": b'{"instances": [[' + b"9" * 10_000 + b"]]}",
    "another name": {"instances": [{"labels": [0.0] * FEATURES}]},
    "mixed rows": {"instances": [{"features": [0.0] * FEATURES}, [0.0] * FEATURES]},
    "b64": {"instances": [{"b64": "AAAA"}]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bodies_are_refused(case: str, client: Client) -> None:
    status, answer = client.predict(HOSTILE[case])
    assert (status, list(answer)) == (400, ["error"])
    assert client.predict({"instances": [[0.0] * FEATURES]})[0] == 200


def test_not_a_number_stays_with_its_row(client: Client, mlp: tuple[Path, Any]) -> None:
    features = samples(3)
    features[1] = np.nan
    status, answer = client.predict({"instances": features.tolist()})
    assert status == 200
    received = np.array(answer["predictions"])
    assert np.isnan(received[1]).all()
    expected = mlp[1].predict(features[[0, 2]], verbose=0)
    np.testing.assert_allclose(received[[0, 2]], expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/mlp/versions/4", 404),
        ("GET", "/v1/models/mlp/versions/x", 404),
        ("GET", "/v1/models/mlp/versions/" + "9" * 5000, 404),
        ("POST", "/v1/models/other:predict", 404),
        ("POST", "/v1/models/mlp/versions/4:predict", 404),
        ("POST", "/v1/models/mlp:classify", 400),
        ("GET", "/v1/models/mlp:predict", 405),
        ("POST", "/v1/models/mlp", 405),
        ("GET", "/", 400),
        ("GET", "/v1/models/", 400),
        ("GET", "/v1/models/../../etc/passwd", 400),
        ("GET", "/v1/models/..%2f..%2f..%2fetc%2fpasswd/metadata", 400),
        ("GET", "/v1/models/%2e%2e/metadata", 404),
        ("GET", "/v1/models/mlp/versions/..%2f3/metadata", 400),
        ("GET", "/v1/models/%00/metadata", 404),
        ("GET", "/v1/models/mlp/assets/ipu_serving.json", 400),
    ],
)
def test_paths_reach_nothing_but_models(method: str, path: str, status: int, client: Client) -> None:
    body = {"instances": [[0.0] * FEATURES]} if method == "POST" else None
    received, answer = client.request(method, path, body)
    assert (received, list(answer)) == (status, ["error"])


def test_bodies_above_the_limit(client: Client) -> None:
    status, answer = client.predict(b" " * ((1 << 20) + 1))
    assert status == 413 and "larger" in answer["error"]
    status, answer = client.request("POST", f"{client.root}:predict", b"x", {"Content-Length": "9" * 15})
    assert status == 413 and "larger" in answer["error"]
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as chunks:
        head = f"POST {client.root}:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks.sendall(head.encode())
        for _ in range(16):
            chunks.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        chunks.sendall(b"1\r\n \r\n0\r\n\r\n")
        received = chunks.recv(100)
    assert b" 413 " in received
    assert client.predict({"instances": [[0.0] * FEATURES]})[0] == 200


def test_a_body_that_comes_too_late(mlp: tuple[Path, Any]) -> None:
    with running(mlp[0], replace(PATIENT, read_timeout=0.3)) as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as slow:
            slow.sendall(f"POST {client.root}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
            assert b" 408 " in slow.recv(100)
        assert wait_for(lambda: client.predict({"instances": [[0.0] * FEATURES]})[0] == 200)


def test_no_limits_of_time(mlp: tuple[Path, Any]) -> None:
    with running(mlp[0], ClientLimits(read_timeout=0, predict_timeout=0)) as client:
        assert client.predict({"instances": [[0.0] * FEATURES]})[0] == 200


def test_requests_that_do_not_arrive(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as gone:
        gone.sendall(f"POST {client.root}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as garbage:
        garbage.sendall(b"\x16\x03\x01\x00" + bytes(range(256)) + b"\r\n\r\n")
        assert b" 400 " in garbage.recv(100)
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as endless:
        endless.sendall(b"GET /" + b"a" * 200_000)
        assert b" 400 " in endless.recv(100)
    assert client.predict({"instances": [[0.0] * FEATURES]})[0] == 200


def test_many_clients_at_once(mlp: tuple[Path, Any]) -> None:
    clients, seconds = 50, 2.0
    features = samples(clients * 3)
    expected = mlp[1].predict(features, verbose=0)
    failures: list[Any] = []
    answered = [0] * clients
    with running(mlp[0]) as client:
        end = time.monotonic() + seconds

        def work(number: int) -> None:
            rows = slice(number, number + 1 + number % 3)
            body = json.dumps({"instances": features[rows].tolist()}).encode()
            connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
            try:
                while time.monotonic() < end or not answered[number]:
                    connection.request("POST", f"{client.root}:predict", body)
                    response = connection.getresponse()
                    answer = json.loads(response.read())
                    if response.status != 200:
                        failures.append(answer)
                        return
                    received = np.array(answer["predictions"])
                    if not np.allclose(received, expected[rows], rtol=TOLERANCE, atol=TOLERANCE):
                        failures.append((number, received))
                        return
                    answered[number] += 1
            except Exception as error:  # handed to the test's thread
                failures.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert not failures, failures[:3]
    assert min(answered) > 0


def test_health_readiness_and_metrics(client: Client) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    assert client.request("GET", "/healthz") == (200, {"status": "ok"})
    assert client.request("GET", "/readyz") == (200, {"status": "ready"})

    def counts() -> dict[str, float]:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", "/monitoring/prometheus/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
        return {
            each.labels["status"]: each.value
            for each in samples
            if each.name == "ipu_serving_requests_total" and each.labels["model"] == "mlp"
        }

    before = counts()
    client.predict({"instances": [[0.0] * FEATURES] * 3})
    client.predict({"instances": 3})
    after = counts()
    assert after["200"] == before.get("200", 0) + 1 and after["400"] == before.get("400", 0) + 1


def test_new_versions_are_served_without_a_restart(mlp: tuple[Path, Any], tmp_path: Path) -> None:
    directory = tmp_path / "mlp"
    shutil.copytree(mlp[0], directory)
    features = samples(4)
    row = {"instances": features.tolist()}
    with running(directory, replace(PATIENT, poll_period=0.05)) as client:
        first = client.predict(row)
        (directory / "7").mkdir()
        (directory / "7" / "saved_model.pb").write_bytes(b"not complete yet")
        time.sleep(0.3)
        assert client.name_and_version() == ("mlp", "3") and client.predict(row) == first
        shutil.rmtree(directory / "7")
        other = export_mlp(directory / "7")
        assert wait_for(lambda: client.name_and_version() == ("mlp", "7"))
        status, answer = client.predict(row)
        expected = other.predict(features, verbose=0)
        assert status == 200
        np.testing.assert_allclose(answer["predictions"], expected, rtol=TOLERANCE, atol=TOLERANCE)
        assert client.request("GET", f"{client.root}/versions/3")[0] == 404
        shutil.rmtree(directory / "7")
        assert wait_for(lambda: client.name_and_version() == ("mlp", "3")) and client.predict(row) == first
