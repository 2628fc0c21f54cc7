"""Hostile clients: the server answers each of them with an error, and everybody else as before."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import uvicorn
from uvicorn.server import ServerState

from engine.serving import server
from engine.serving.__main__ import main
from engine.serving.application import Application
from engine.serving.errors import RequestError
from engine.serving.limits import STARTS_AT_ONCE, RoundRobin, Rounds, Shares, network
from engine.serving.manifest import Manifest, TensorManifest
from engine.serving.parser import ParserProcess
from engine.serving.rest import parse_request
from engine.serving.servable import Servable
from tests.files.programs import classifier, expected
from tests.serving import load
from tests.serving.plain import export, serving
from tests.serving.raw import posted, sent

X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
BODY = json.dumps({"instances": X.tolist()}).encode()
HEAD = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n"


def framed(body: bytes, *headers: bytes) -> bytes:
    return HEAD + b"".join(each + b"\r\n" for each in headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


HOSTILE: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "two lengths": (framed(BODY, b"Content-Length: 3"), (400,)),
    "a length and chunks": (framed(BODY, b"Transfer-Encoding: chunked"), (400,)),
    "chunks twice": (HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", (400, 501)),
    "a huge chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n", (400,)),
    "a negative length": (HEAD + b"Content-Length: -1\r\n\r\n", (400,)),
    "a length with a sign": (HEAD + b"Content-Length: +3\r\n\r\n{}", (400,)),
    "a length of many digits": (HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", (400, 413)),
    "a large length": (HEAD + b"Content-Length: 99999999999999\r\n\r\n", (413,)),
    "a space before the colon": (b"GET /v1/models/m HTTP/1.1\r\nHost : x\r\n\r\n", (400,)),
    "a folded header": (
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n  c\r\nConnection: close\r\n\r\n",
        (200, 400),
    ),
    "a zero byte": (b"GET /v1/models/m\0 HTTP/1.1\r\nHost: x\r\n\r\n", (400,)),
    "no host": (b"GET /v1/models/m HTTP/1.1\r\n\r\n", (400,)),
    "an old version": (b"GET /v1/models/m HTTP/9.9\r\nHost: x\r\nConnection: close\r\n\r\n", (200, 400)),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 80 + b"\r\n\r\n", (400,)),
    "a long path": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (400, 431)),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % k for k in range(9999)) + b"\r\n", (400, 431)),
    "gzip": (framed(gzip.compress(BODY), b"Content-Encoding: gzip", b"Connection: close"), (400,)),
    "another encoding": (framed(BODY, b"Content-Encoding: br", b"Connection: close"), (400,)),
    "another method": (b"TRACE /v1/models/m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (400, 405)),
    "a path upwards": (b"GET /v1/models/../../etc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (400, 404)),
    **{
        f"JSON: {name}": (framed(body, b"Connection: close"), (400,))
        for name, body in {
            "deep": b"[" * 100_000,
            "deep and closed": b'{"instances":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
            "huge integer": b'{"instances": [[' + b"9" * 100_000 + b",1,1,1,1]]}",
            "huge exponent": b'{"instances": [[1e999999,1,1,1,1]]}',
            "few": b'{"instances": [[1,2,3]]}',
            "irregular": b'{"instances": [[1,2,3,4,5],[1]]}',
            "texts": b'{"instances": [["1","2","3","4","5"]]}',
            "null": b'{"instances": [[null,2,3,4,5]]}',
            "booleans": b'{"instances": [[true,2,3,4,5]]}',
            "empty": b"",
            "nothing": b"{}",
            "both": b'{"instances": [[1,2,3,4,5]], "inputs": [[1,2,3,4,5]]}',
            "UTF-16": BODY.decode().encode("utf-16"),
            "invalid UTF-8": b'{"instances": "\xff"}',
            "no rows": b'{"instances": []}',
            "another signature": b'{"signature_name": "a", "instances": [[1,2,3,4,5]]}',
            "no object": b"3",
        }.items()
    },
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("served")
    export(folder / "m" / "1")
    with serving(folder / "m", folder / "log") as (found, _):
        yield found
    assert "Traceback" not in (folder / "log").read_text()


@pytest.mark.parametrize("kind", HOSTILE)
def test_each_is_answered_with_an_error_in_json(kind: str, port: int) -> None:
    content, statuses = HOSTILE[kind]
    answer = sent(port, content)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) in statuses, answer[:300]
    if b" 200 " not in head:
        assert b"error" in body and b"Traceback" not in body
    status, _, right = posted(port, "/v1/models/m:predict", BODY, {})
    assert status == 200
    scores = [row["scores"] for row in json.loads(right)["predictions"]]
    np.testing.assert_allclose(scores, expected(classifier(8), X)["scores"], rtol=1e-5)


def test_long_names_are_not_sent_back(port: int) -> None:
    status, _, answer = posted(port, "/v1/models/m:predict", b'{"inputs": {"%s": 1}}' % (b"k" * 1_000_000), {})
    assert status == 400 and len(answer) < 3000 and "Expected" in json.loads(answer)["error"]


@pytest.mark.explore
def test_honest_clients_are_answered_beside_hostile_ones() -> None:
    with load.served() as (port, file):
        alone, beside = (load.measured(port, file, 60.0, 50, hostile) for hostile in (0, 20))
    print(alone, beside, sep="\n")
    assert not alone.others and not beside.others and alone.seconds and beside.seconds


def test_one_address_leaves_some_to_others() -> None:
    shares = Shares(8)
    for _ in range(6):
        assert not shares.is_above("a", 1)
        shares.add("a", 1)
    assert shares.is_above("a", 1) and not shares.is_above("b", 1)
    shares.add("a", -1)
    assert not shares.is_above("a", 1) and shares.all == 5


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
        ("2001:db8:1:3::4", "2001:db8:1:3::"),
        ("fe80::1%eth0", "fe80::"),
        ("a socket", "a socket"),
    ],
)
def test_the_addresses_of_one_network_are_one_client(address: str, counted: str) -> None:
    assert network((address, 80)) == counted


def test_requests_begin_in_rounds_of_all_addresses() -> None:
    begun: list[str] = []

    async def application(scope: Any, receive: object, send: object) -> None:
        begun.append(network(scope["client"]))

    async def requests() -> None:
        rounds = RoundRobin(application)
        calls = [
            asyncio.create_task(rounds({"type": "http", "client": (address, 1)}, None, None))
            for address in ["10.0.0.1"] * 99 + ["10.0.0.2"] * 3 + ["10.0.0.3"]
        ]
        await asyncio.sleep(0)
        calls[50].cancel()
        await asyncio.wait(calls)
        assert not rounds._rounds._waiting
        await rounds({"type": "http", "client": None}, None, None)

    asyncio.run(requests())
    assert begun.count("10.0.0.1") == 98 and len(begun) == 103 and begun[-1] == ""
    assert {"10.0.0.2", "10.0.0.3"} <= {*begun[: 2 * STARTS_AT_ONCE + 1]}
    assert "10.0.0.2" not in begun[4 * STARTS_AT_ONCE + 2 :]


def test_tiny_chunks_are_parsed_in_rounds_of_all_addresses() -> None:
    """A connection with thousands of chunks parses a few of them, then others have their turn; none is lost."""
    count, bodies, events = 5000, [], []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        bodies.append(body)

    async def parse() -> list[mock.Mock]:
        config, rounds, transports = uvicorn.Config(application, lifespan="off", log_config=None), Rounds(), []
        config.load()
        for address in ("10.0.0.1", "10.0.0.2"):
            transport = mock.Mock()
            transport.get_extra_info = {"peername": (address, 1)}.get
            transport.is_closing.return_value, transport.get_write_buffer_size.return_value = False, 0
            connection = server.Connection(9, rounds, config, ServerState(), {})
            parsed = connection._next_event
            connection._next_event = lambda a=address, parsed=parsed: (events.append(a), parsed())[1]
            connection.connection_made(transport)
            connection.data_received(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (count // 2))
            assert len(events) <= 2 * server.EVENTS_AT_ONCE and transport.pause_reading.called
            connection.data_received(b"1\r\nx\r\n" * (count // 2) + b"0\r\n\r\n")
            transports.append(transport)
        while len(bodies) < 2:
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return transports

    transports = asyncio.run(parse())
    assert bodies == [b"x" * count] * 2 and len(events) > 2 * count
    assert max(len(list(run)) for _, run in itertools.groupby(events)) <= 2 * server.EVENTS_AT_ONCE
    assert all(each.resume_reading.called for each in transports)


@pytest.mark.parametrize(("proxies", "client"), [((), "127.0.0.1"), (("127.0.0.1",), "10.9.8.7")])
def test_only_named_proxies_say_who_the_client_is(proxies: tuple[str, ...], client: str) -> None:
    seen: list[str] = []

    async def application(scope: Any, receive: object, send: object) -> None:
        seen.append(scope["client"][0])

    nothing = Manifest("program", 1, (), (), (), ())
    made = Application(Servable("m", 1, nothing, lambda arrays, timeout=None: arrays))
    made.asgi = application  # type: ignore[assignment]
    config = server.server(made, 4, proxies=proxies).config
    headers = [(b"x-forwarded-for", b"10.9.8.7")]
    asyncio.run(config.loaded_app({"type": "http", "client": ("127.0.0.1", 1), "headers": headers}, None, None))
    assert seen == [client]


def test_steps_of_a_model_run_only_where_they_are_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(tmp_path / "m" / "1", with_steps=True)
    opened: list[Any] = []

    def steps(path: Path, *_: Any) -> Any:
        opened.append(path)
        raise RequestError(500, "here")

    arguments = [str(tmp_path / "m"), "--port", "0"]
    assert main("s", arguments, steps) == 1 and not opened
    assert "serve it with --trust-steps" in capsys.readouterr().err
    assert main("s", [*arguments, "--trust-steps"], steps) == 1
    assert capsys.readouterr().err == "python -m s: here\n"
    assert opened


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "string"])
def test_a_process_parses_as_this_one_does(dtype: str) -> None:
    value = {"bool": True, "string": "\u00e4\n"}.get(dtype, 3)
    tensors = (TensorManifest("x", (4, 2), dtype), TensorManifest("y", (4, 1), "float32"))
    manifest = Manifest("p", 1, tensors, tensors, tensors, tensors)
    body = json.dumps({"inputs": {"x": [[value] * 2] * 3, "y": [[float(k)] for k in range(3)]}}).encode()
    parser = ParserProcess()
    try:
        (x, y), in_rows = parser.parse(body, manifest)
        right, _ = parse_request(body, manifest)
        assert not in_rows and x.dtype == right[0].dtype and x.tolist() == right[0].tolist()
        assert y.tolist() == right[1].tolist()
        with pytest.raises(RequestError, match="JSON Parse error") as found:
            parser.parse(b"{", manifest)
        assert found.value.status == 400
        assert parser._process is not None
        parser._process.kill()
        parser._process.wait()
        assert parser.parse(body, manifest)[0][1].tolist() == y.tolist(), "another one is started"
    finally:
        parser.close()


@pytest.mark.parametrize("options", [[], ["-I"], ["-E"], ["-s"], ["-E", "-s"], ["-P"]])
def test_the_process_is_as_isolated_as_this_one(options: list[str]) -> None:
    root = str(Path(server.__file__).parents[2])
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from engine.serving.parser import isolation; print(*isolation())"
    )
    command = [sys.executable, *options, "-c", code, root]
    given = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert given == ({"-I", "-E", "-s"} if options == ["-I"] else set(options) - {"-P"})
