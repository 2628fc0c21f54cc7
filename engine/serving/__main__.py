"""`python -m engine.serving DIR`: serves an exported model on the engine, as TensorFlow Serving's REST API does."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from engine import limits, trusting_vertices
from engine.errors import ConfigurationError, IPUError
from engine.resource_limits import add_limit_argument
from engine.serving.manifest import Manifest
from engine.serving.servable import BatchFunction, WithSteps, open_servable, reloading

logger = logging.getLogger("ipu.serving")
PACKAGES = ("uvicorn", "starlette", "orjson", "prometheus_client", "anyio", "h11", "click")
CONNECTIONS_PER_REQUEST = 4
"""Open connections for each concurrent request: many are idle, kept alive."""


def parser(command: str) -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(f"python -m {command}", description=__doc__.replace("engine.serving", command))
    made.add_argument("directory", help="a SavedModel exported for the IPU, or a directory of versions of one")
    made.add_argument("--name", help="the model's name in URLs; that of the directory if not given")
    made.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    made.add_argument("--port", type=int, default=8501, help="the port; 0 takes a free one (default 8501)")
    made.add_argument("--batch-window", type=_time, default=1.0, help="milliseconds to wait for a full batch")
    made.add_argument("--max-body", type=_positive, default=32, help="the most MiB of a request (default 32)")
    made.add_argument("--max-requests", type=_positive, default=256, help="requests at the same time (default 256)")
    made.add_argument("--read-timeout", type=_time, default=30.0, help="seconds for a request to arrive; 0 is no limit")
    made.add_argument(
        "--predict-timeout",
        type=_time,
        default=30.0,
        help="seconds for a prediction, and for the batch it is in; 0 is no limit",
    )
    made.add_argument(
        "--trust-vertices", action="store_true", help="run the code of vertices that the model brings with it"
    )
    made.add_argument(
        "--trust-steps", action="store_true", help="run the steps before and after the program, by TensorFlow"
    )
    add_limit_argument(made)
    made.add_argument(
        "--poll-seconds", type=_time, default=1.0, help="seconds between two looks for a new version; 0 is never"
    )
    made.add_argument("--objects", help="a file of `python -m engine.aot`, where Numba is not installed")
    made.add_argument(
        "--forwarded-allow-ips",
        default="",
        metavar="ADDRESSES",
        help="addresses of proxies, with commas between: limits then count the clients that X-Forwarded-For names",
    )
    made.add_argument("--ssl-certfile", help="a certificate chain in PEM: the server then speaks HTTPS alone")
    made.add_argument("--ssl-keyfile", help="its private key in PEM, if it is in another file")
    made.add_argument("--ssl-keyfile-password", help="the password of the private key")
    made.add_argument("--verbose", action="store_true", help="log each request")
    return made


def main(
    command: str = "engine.serving", arguments: Sequence[str] | None = None, with_steps: WithSteps | None = None
) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status, 1 for a model that cannot be served."""
    options = parser(command).parse_args(arguments)
    level = logging.DEBUG if options.verbose else logging.INFO
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logger.setLevel(level)
    try:
        with limits(**dict(options.limit)), trusting_vertices() if options.trust_vertices else nullcontext():
            _serve(options, with_steps if with_steps is None or options.trust_steps else _untrusted)
    except IPUError as error:
        print(f"python -m {command}: {error}", file=sys.stderr)
        return 1
    return 0


def _untrusted(path: Path, _: Manifest, __: BatchFunction) -> BatchFunction:
    raise ConfigurationError(
        f"Expected a program alone, which is data. Received: {path}, with steps before or after it: TensorFlow's "
        "functions, which may read and write files. If you trust the origin of the model as you trust a program, "
        "serve it with --trust-steps."
    )


def _serve(options: argparse.Namespace, with_steps: WithSteps | None) -> None:
    try:
        from engine.serving.application import Application
        from engine.serving.limits import ClientLimits
        from engine.serving.server import bound_socket, server
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise ConfigurationError(
            f"Expected the packages that the server needs. Received: no module {error.name!r}. Install them: pip "
            "install uvicorn starlette orjson prometheus-client."
        ) from error
    begin = time.perf_counter()
    servable = open_servable(options.directory, options.name, with_steps, options.objects)
    servable.warm_up(options.predict_timeout or None)
    client_limits = ClientLimits(
        body_bytes=options.max_body << 20,
        read_timeout=options.read_timeout,
        predict_timeout=options.predict_timeout,
        concurrent_requests=options.max_requests,
        batch_window=options.batch_window / 1e3,
        poll_period=options.poll_seconds,
    )
    names = ("ssl_certfile", "ssl_keyfile", "ssl_keyfile_password") if options.ssl_certfile else ()
    tls = {name: getattr(options, name) for name in names}
    reload = reloading(
        options.directory, options.name, with_steps, options.objects, timeout=options.predict_timeout or None
    )
    application = Application(servable, client_limits, reload)
    proxies = [each.strip() for each in options.forwarded_allow_ips.split(",") if each.strip()]
    made = server(application, CONNECTIONS_PER_REQUEST * options.max_requests, proxies, **tls)
    listener = bound_socket(options.host, options.port)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    logger.info(
        "Serving %s://%s:%d/v1/models/%s, version %d, batches of %s, loaded in %.2f s",
        *("https" if options.ssl_certfile else "http", address, port, servable.name, servable.version),
        *(servable.manifest.batch_size or "one shape", time.perf_counter() - begin),
    )
    made.run(sockets=[listener])
    logger.info("Stopped")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, received {text}")
    return value


def _time(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e7:
        raise argparse.ArgumentTypeError(f"expected a time of at least 0, received {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
