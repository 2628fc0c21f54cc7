"""TensorFlow Serving's REST API as an ASGI application: status, metadata and predict, errors as JSON.

The application also reports health, readiness and metrics, and follows versions that appear or vanish meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as CounterMetric
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.serving.batching import Batcher
from engine.serving.errors import RequestError
from engine.serving.infer import HEADER_LENGTH, format_infer, parse_infer
from engine.serving.limits import ClientLimits, Shares, network
from engine.serving.manifest import Manifest
from engine.serving.parser import ParserProcess
from engine.serving.rest import format_response, metadata, parse_request
from engine.serving.servable import Servable

logger = logging.getLogger("ipu.serving")
LARGE_BODY = 1 << 16
"""Bodies and results above this many bytes are converted in a thread, so that other requests need not wait."""

DISCARDED = 4
"""Bodies up to this many times the limit are read, and discarded, before they are refused."""


class NameConvertor(StringConvertor):
    """A model's name in a path, which ends at a colon."""

    regex = "[^/:]+"


register_url_convertor("model", NameConvertor())

Parse = Callable[[bytes, Manifest], tuple[list[np.ndarray], Any]]
"""Function from a body to its input arrays and its options."""

Format = Callable[[list[np.ndarray], Servable, Any], Response]
"""Function from results, their model and what the request asked for to the answer."""

Reload = Callable[[Servable], Servable | None]


class Metrics:
    """Metrics of one application that Prometheus reads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("model", "version")
        self.requests = CounterMetric(
            "ipu_serving_requests", "Predict requests by status", (*labels, "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "ipu_serving_request_seconds", "Seconds from a request's head to its answer", labels, registry=self.registry
        )
        self.rows = Histogram(
            "ipu_serving_request_rows",
            "Rows of a request",
            labels,
            buckets=tuple(2.0**k for k in range(13)),
            registry=self.registry,
        )
        self.under_way = Gauge("ipu_serving_requests_under_way", "Predict requests now", registry=self.registry)


class Application:
    """Serves a version of a model. `asgi` is the application for a server.

    `reload` takes the served version and returns another in its place, or None; it may load, in a thread.
    """

    def __init__(self, servable: Servable, limits: ClientLimits | None = None, reload: Reload | None = None) -> None:
        self._limits = limits or ClientLimits()
        self._reload = reload
        self._batcher = self._batcher_of(servable)
        self.metrics = Metrics()
        self._bytes = Shares(self._limits.all_bodies_bytes)
        self._requests = Shares(self._limits.concurrent_requests)
        self._is_ready = False
        self._large_bodies = asyncio.Semaphore(1)
        self._parser = ParserProcess()
        root = "/v1/models/{name:model}"
        version = root + "/versions/{version:model}"
        infer = "/v2/models/{name:model}", "/v2/models/{name:model}/versions/{version:model}"
        routes = [
            *(Route(f"{path}/infer", self._infer, methods=["POST"]) for path in infer),
            *(Route(f"{path}:predict", self._predict, methods=["POST"]) for path in (version, root)),
            *(Route(f"{path}/metadata", self._metadata, methods=["GET"]) for path in (version, root)),
            *(Route(path, self._status, methods=["GET"]) for path in (version, root)),
            Route("/healthz", self._health, methods=["GET"]),
            Route("/readyz", self._readiness, methods=["GET"]),
            Route("/monitoring/prometheus/metrics", self._metrics, methods=["GET"]),
        ]
        handlers = {RequestError: _refused, HTTPException: _malformed, Exception: _failed}
        self.asgi = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        self.asgi.router.redirect_slashes = False

    def _batcher_of(self, servable: Servable) -> Batcher:
        limits = self._limits
        return Batcher(servable, limits.batch_window, limits.waiting_batches, limits.predict_timeout or None)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._batcher.start()
        watch = asyncio.create_task(self._watch())
        self._is_ready = True
        try:
            yield
        finally:
            self._is_ready = False
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            await self._batcher.stop()
            self._parser.close()

    async def _watch(self) -> None:
        """Serves another version once it is loaded; requests to the earlier one still get their answers."""
        if self._reload is None or not self._limits.poll_period:
            return
        while True:
            await asyncio.sleep(self._limits.poll_period)
            try:
                found = await asyncio.to_thread(self._reload, self._batcher.servable)
            except Exception:  # an error of one look must not end all others
                logger.exception("Versions could not be looked for")
                continue
            if found is not None:
                old, self._batcher = self._batcher, self._batcher_of(found)
                self._batcher.start()
                await old.drain()

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readiness(self, _: Request) -> Response:
        if not self._is_ready:
            raise RequestError(503, "The server starts, or is shutting down")
        return JSONResponse({"status": "ready"})

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, request: Request) -> Response:
        servable = self._asked(request).servable
        state = {
            "version": str(servable.version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        return JSONResponse({"model_version_status": [state]})

    async def _metadata(self, request: Request) -> Response:
        servable = self._asked(request).servable
        return JSONResponse(metadata(servable.name, servable.version, servable.manifest))

    async def _predict(self, request: Request) -> Response:
        def formatted(results: list[np.ndarray], servable: Servable, in_rows: bool) -> Response:
            return Response(format_response(results, servable.manifest, in_rows), media_type="application/json")

        return await self._answered(request, parse_request, formatted)

    async def _infer(self, request: Request) -> Response:
        length = request.headers.get(HEADER_LENGTH)

        def formatted(results: list[np.ndarray], servable: Servable, asked: Any) -> Response:
            content, header = format_infer(results, servable.manifest, (servable.name, servable.version), asked)
            if header is None:
                return Response(content, media_type="application/json")
            return Response(content, headers={HEADER_LENGTH: str(header)}, media_type="application/octet-stream")

        return await self._answered(request, lambda body, manifest: parse_infer(body, length, manifest), formatted)

    async def _answered(self, request: Request, parse: Parse, formatted: Format) -> Response:
        """The answer to a request of a format, with its metrics."""
        if _is_ambiguous(request):
            raise RequestError(400, "Malformed request: both Content-Length and Transfer-Encoding")
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise RequestError(400, f"Expected a body without Content-Encoding. Received: {encoding:.80}")
        batcher = self._asked(request)
        labels = batcher.servable.name, str(batcher.servable.version)
        status, begin = 500, time.perf_counter()
        try:
            answer = await self._answer(request, batcher, parse, formatted)
            status = 200
        except RequestError as error:
            status = error.status
            raise
        finally:
            seconds = time.perf_counter() - begin
            self.metrics.requests.labels(*labels, str(status)).inc()
            self.metrics.seconds.labels(*labels).observe(seconds)
        logger.debug("predict %s: %.3f ms", batcher.servable.name, 1e3 * seconds)
        return answer

    async def _answer(self, request: Request, batcher: Batcher, parse: Parse, formatted: Format) -> Response:
        """The answer of a prediction, with its limits of requests, bytes and time."""
        body, address, servable = bytearray(), network(request.client), batcher.servable
        try:
            with batcher.in_use():
                reading = self._read(request, body, address)
                await _within(self._limits.read_timeout, reading, 408, "The request did not arrive")
                with self._counted(address):
                    arrays, asked = await self._parse(bytes(body), servable, parse)
                    if servable.manifest.batch_size is not None:
                        self.metrics.rows.labels(servable.name, str(servable.version)).observe(len(arrays[0]))
                    prediction = batcher.predict(arrays)
                    results = await _within(
                        self._limits.predict_timeout, prediction, 504, "The prediction was not made"
                    )
                    large = sum(result.nbytes for result in results) > LARGE_BODY
                    return cast(Response, await _in_thread_if(large, formatted, results, servable, asked))
        finally:
            self._bytes.add(address, -len(body))

    @contextlib.contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        """Counts a request that has arrived as under way, while the context is open. Raises RequestError 503 where
        there are too many.

        Requests that are still arriving do not count, as their clients decide how long that takes.
        """
        if self._requests.all >= self._requests.most:
            raise RequestError(503, f"The server is busy with {self._requests.most} requests, its limit")
        if self._requests.is_above(address, 1):
            raise RequestError(
                503, f"The server is busy with {self._requests.most_of_one} requests of this address, its limit"
            )
        self._requests.add(address, 1)
        self.metrics.under_way.set(self._requests.all)
        try:
            yield
        finally:
            self._requests.add(address, -1)
            self.metrics.under_way.set(self._requests.all)

    def _asked(self, request: Request) -> Batcher:
        """The batcher of the model and version that a request names; raises RequestError 404 for any other."""
        name, version = request.path_params["name"], request.path_params.get("version")
        served = self._batcher.servable
        if name == served.name and version in (None, str(served.version)):
            return self._batcher
        what = f"Latest({name[:100]})" if version is None else f"Specific({name[:100]}, {version[:20]})"
        raise RequestError(404, f"Servable not found for request: {what}")

    async def _parse(self, body: bytes, servable: Servable, parse: Parse) -> tuple[list[np.ndarray], Any]:
        """Parses a large body outside of the event loop, JSON in another process: one at a time, to save memory."""
        if len(body) <= LARGE_BODY:
            return parse(body, servable.manifest)
        if parse is parse_request:
            parse = self._parser.parse
        async with self._large_bodies:
            return await asyncio.to_thread(parse, body, servable.manifest)

    async def _read(self, request: Request, body: bytearray, address: str) -> None:
        """Reads the body. Raises RequestError: 413 if it is too large, 503 if all bodies that are present together are.

        Part of the excess is read, as most clients look for an answer only after they have sent the whole body.
        """
        most = self._limits.body_bytes
        error = RequestError(413, f"The request body is larger than {most} bytes")
        declared = request.headers.get("content-length", "0")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > DISCARDED * most):
            raise error
        length = 0
        async for chunk in request.stream():
            length += len(chunk)
            if length <= most:
                body += chunk
                self._bytes.add(address, len(chunk))
            elif length > DISCARDED * most:
                raise error
            if self._bytes.all > self._bytes.most:
                raise RequestError(503, f"The server reads requests of more than {self._bytes.most} bytes, its limit")
            if self._bytes.is_above(address, 0):
                limit = self._bytes.most_of_one
                raise RequestError(503, f"The server reads more than {limit} bytes for this address, its limit")
        if length > most:
            raise error


async def _within(seconds: float, work: Awaitable[Any], status: int, message: str) -> Any:
    try:
        async with asyncio.timeout(seconds or None):
            return await work
    except TimeoutError as error:
        raise RequestError(status, f"{message} within {seconds:g} seconds") from error
    except ClientDisconnect as error:
        raise RequestError(400, "The client has gone") from error


async def _in_thread_if(large: bool, function: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.to_thread(function, *arguments) if large else function(*arguments)


def _is_ambiguous(request: Request) -> bool:
    """Whether a body has two lengths: a proxy may use the other one, and take the rest of the body for a request."""
    return "content-length" in request.headers and "transfer-encoding" in request.headers


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    # The rest of a body that is too large, or late, is not read: the connection must close.
    headers = {"Connection": "close"} if error.status in (408, 413, 503) or _is_ambiguous(request) else None
    if error.status >= 500:
        logger.warning("%d: %s", error.status, error.message)
    return JSONResponse({"error": error.message}, error.status, headers)


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = 400 if error.status_code == 404 else error.status_code
    message = f"Malformed request: {request.method} {request.url.path[:200]}"
    return JSONResponse({"error": message}, status, error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    logger.error("A request failed", exc_info=error)
    return JSONResponse({"error": "Internal error"}, 500)
