"""Connections of the server: many, silent, dripping and idle ones, limits, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.serving import server
from engine.serving.application import Application
from engine.serving.batching import Batcher
from engine.serving.servable import open_servable
from ipu import serving
from ipu.ipu_strategy import IPUStrategyV1
from tests.interrupting import PATIENCE_SECONDS
from tests.serving.helpers import FEATURES, PATIENT, Client, running


def test_connections_are_taken_before_the_server_runs() -> None:
    listener = server.bound_socket("127.0.0.1", 0)
    socket.create_connection(listener.getsockname(), timeout=PATIENCE_SECONDS).close()
    listener.close()


@contextlib.contextmanager
def held_predictions(monkeypatch: pytest.MonkeyPatch, clients: Sequence[Client]) -> Iterator[list[tuple[int, Any]]]:
    """Holds a request of each client; at the end all are answered, and the list has their answers."""
    row = {"instances": [[0.0] * FEATURES]}
    arrived, release, predict = threading.Semaphore(0), threading.Event(), Batcher.predict
    answers: list[tuple[int, Any]] = []

    async def held(self: Batcher, *arguments: Any) -> Any:
        arrived.release()
        await asyncio.to_thread(release.wait)
        return await predict(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Batcher, "predict", held)
        threads = [threading.Thread(target=lambda c=c: answers.append(c.predict(row))) for c in clients]
        try:
            for thread in threads:
                thread.start()
            assert all(arrived.acquire(timeout=PATIENCE_SECONDS) for _ in threads)
            yield answers
        finally:
            release.set()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)


def test_more_requests_than_allowed_are_turned_away(mlp: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"instances": [[0.0] * FEATURES]}
    with running(mlp[0], replace(PATIENT, concurrent_requests=1)) as client:
        with held_predictions(monkeypatch, [client]) as answers:
            status, answer = client.predict(row)
        assert status == 503 and "busy with 1 requests" in answer["error"] and answers[0][0] == 200
        assert client.predict(row)[0] == 200


def test_bodies_that_drip_turn_nobody_away(mlp: tuple[Path, Any]) -> None:
    begun = b"POST /v1/models/mlp:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    limits = replace(PATIENT, concurrent_requests=1)
    with running(mlp[0], limits, most_connections=4) as client, contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connected(client, begun))
            assert client.predict({"instances": [[0.0] * FEATURES]})[0] == 200


def test_requests_under_way_are_answered_at_the_end(mlp: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[int, Any]] = []
    arrived, predict = threading.Event(), Batcher.predict

    async def noting(self: Batcher, *arguments: Any) -> Any:
        arrived.set()
        return await predict(self, *arguments)

    monkeypatch.setattr(Batcher, "predict", noting)
    with running(mlp[0], replace(PATIENT, batch_window=0.5)) as client:
        thread = threading.Thread(target=lambda: answers.append(client.predict({"instances": [[0.0] * FEATURES]})))
        thread.start()
        assert arrived.wait(PATIENCE_SECONDS)
    thread.join(PATIENCE_SECONDS)
    assert [status for status, _ in answers] == [200]


def test_silent_connections_are_closed(mlp: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_TIMEOUT", 0.3)
    with running(mlp[0]) as client:
        for begun in (b"", b"GET /v1/models/mlp HTTP/1.1\r\nHost:"):
            with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as silent:
                silent.sendall(begun)
                assert silent.recv(100) == b""
        monkeypatch.setattr(server, "HEADER_TIMEOUT", PATIENCE_SECONDS)
        assert client.request("GET", client.root)[0] == 200


STATUS = b"GET /v1/models/mlp HTTP/1.1\r\nHost: x\r\n"


def connected(client: Client, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS)
    made.sendall(sent)
    return made


def answers(connection: socket.socket, request: bytes = STATUS + b"\r\n") -> bool:
    """Whether a request on the connection is answered with status 200."""
    connection.sendall(request)
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status == 200 and bool(json.loads(response.read()))


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection within the tests' patience."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


DRIPPING = {
    "a first head": (b"", b"GET /v1/models/mlp HTTP/1.1\r\nX: "),
    "a second head": (STATUS + b"\r\n", b"GET /v1/models/mlp HTTP/1.1\r\nX: "),
    "blank lines": (STATUS + b"\r\n", b"\r\n"),
    "a body that nobody reads": (STATUS + b"Content-Length: 1000000\r\n\r\n", b"a"),
    "chunks that nobody reads": (STATUS + b"Transfer-Encoding: chunked\r\n\r\n", b"1"),
}


@pytest.mark.parametrize("kind", DRIPPING)
def test_connections_that_drip_are_closed(kind: str, mlp: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    request, begun = DRIPPING[kind]
    with running(mlp[0]) as client, connected(client) as slow:
        assert not request or answers(slow, request)
        monkeypatch.setattr(server, "HEADER_TIMEOUT", 0.5)
        if not request:
            slow.close()
            slow = connected(client)
        slow.sendall(begun)
        slow.setblocking(False)
        end, closed = time.monotonic() + PATIENCE_SECONDS, False
        while not closed and time.monotonic() < end:
            try:
                slow.send(b"\r\n" if kind == "blank lines" else b"a")
                closed = slow.recv(1 << 16) == b""
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                closed = True
        slow.close()
        assert closed
        monkeypatch.setattr(server, "HEADER_TIMEOUT", PATIENCE_SECONDS)
        assert client.request("GET", client.root)[0] == 200


def test_a_full_server_closes_what_waits_for_longest(mlp: tuple[Path, Any]) -> None:
    with running(mlp[0], most_connections=4) as client, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(client)) for _ in range(4)]
        assert all(map(answers, held)) and answers(held[0])
        assert client.predict({"instances": [[0.0] * FEATURES]})[0] == 200
        assert is_closed(held[1])
        assert all(map(answers, (held[0], held[2], held[3])))


def test_a_full_server_whose_connections_are_busy_says_so(
    mlp: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(mlp[0], most_connections=2) as client:
        with held_predictions(monkeypatch, [client, client]) as answers:
            status, answer = client.request("GET", client.root)
        assert status == 503 and "as many connections as it takes" in answer["error"]
        assert [each[0] for each in answers] == [200, 200]
        assert client.request("GET", client.root)[0] == 200


def test_answers_that_are_not_read_are_dropped(
    tmp_path: Path, strategy: IPUStrategyV1, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tf.function(input_signature=[tf.TensorSpec((1,), tf.float32, name="x")])
    def widen(x: Any) -> Any:
        return tf.broadcast_to(x, (1, 1 << 21)) + tf.range(1 << 21, dtype=tf.float32)

    with strategy.scope():
        serving.export_single_step(widen, str(tmp_path / "wide" / "1"), 1)
    monkeypatch.setattr(server, "UNREAD_PERIOD", 0.3)
    body = b'{"inputs": [0.5]}'
    head = b"POST /v1/models/wide:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with running(tmp_path / "wide") as client, connected(client, head + body) as idle:
        time.sleep(0.5)
        status, answer = client.predict({"inputs": [0.5]})
        assert status == 200 and answer["outputs"][0][:2] == [0.5, 1.5]
        assert is_closed(idle)


def test_what_is_no_http_is_refused_as_json(client: Client) -> None:
    with connected(client, b"\x16\x03\x01\r\n\r\n") as garbage:
        received = b"".join(iter(lambda: garbage.recv(1 << 16), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b" 400 " in head and b"application/json" in head and list(json.loads(body)) == ["error"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_it_speaks_tls(mlp: tuple[Path, Any], tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(chain)]
    subprocess.run([*made, *subject], check=True, capture_output=True)
    files = {"ssl_certfile": str(chain), "ssl_keyfile": str(key)}
    trusting = ssl.create_default_context(cafile=str(chain))
    with running(mlp[0], most_connections=40, **files) as client, contextlib.ExitStack() as opened:
        silent = [opened.enter_context(connected(client, b"")) for _ in range(100)]
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
            opened.enter_context(connected(client, words))
        connection = http.client.HTTPSConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS, context=trusting)
        for _ in range(2):
            connection.request("GET", client.root)
            response = connection.getresponse()
            assert response.status == 200 and response.read()
        connection.close()
        assert is_closed(silent[0]), "more handshakes are pending than connections are allowed"
    application = Application(open_servable(mlp[0]))
    with pytest.raises(ConfigurationError, match="--ssl-certfile"):
        server.server(application, 10, ssl_certfile=str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigurationError, match="--ssl-certfile"):
        server.server(application, 10, ssl_certfile=str(key), ssl_keyfile=str(chain))
