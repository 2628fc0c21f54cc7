"""Fixtures of every test: a quiet TensorFlow, an unconfigured system, repeatable hypothesis examples."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import exploring

if TYPE_CHECKING:
    from engine.program.program import ComputeSet, Program

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Building a wheel would compile for a minute.
os.environ.setdefault("SOFTWARE_IPU_COMPILE_AHEAD", "0")

# A shell starts background jobs with Ctrl-C ignored: tests that send one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example may have to compile a kernel, and other processes may use the core: no deadline fits.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    max_examples=exploring.examples(100),
    derandomize=exploring.seed() is None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

BETWEEN_COLLECTIONS = (10_000, 20, 50)
"""Thresholds of the collector's generations. With Python's own, a full collection, which takes 0.5 seconds where many
models were traced, comes several times in a test that makes many objects. With these, all tests take 0.9 of the
time."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exempts the modules imported with the tests from garbage collection: each pass would scan them."""
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(*BETWEEN_COLLECTIONS)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that only --all runs, except where tests are named one by one."""
    if exploring.seed() is not None or any("::" in argument for argument in config.args):
        return
    if left_out := exploring.left_out(items):
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def verified_programs() -> Iterator[None]:
    """Verifies the result of each pass over programs, in any test."""
    from engine.program.run_passes import listening
    from engine.program.verifier import verify

    known: set[ComputeSet] = set()

    def verified(_: str, program: Program) -> None:
        verify(program, known)
        known.update(program.compute_sets)

    with listening(verified):
        yield


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Resets the IPU configuration after a test that used it, without importing it for one that did not."""
    yield
    if "ipu._internal.config.system" in sys.modules:
        sys.modules["ipu._internal.config.system"].reset_ipu_configuration()


@pytest.fixture(autouse=True)
def outside_of_devices() -> Iterator[None]:
    """Ends a device scope that a test left open: an interruption can reach TensorFlow just where it ends one."""
    module = sys.modules.get("tensorflow.python.eager.context")
    eager = module.context() if module else None
    before = (eager.device_name, eager._thread_local_data.device_spec) if eager else None
    yield
    if eager and before and eager.device_name != before[0]:
        left, _ = eager.device_name, eager._set_device(*before)
        pytest.fail(f"Expected the device scope of the test's beginning, {before[0]!r}. Received: {left!r}")


@pytest.fixture(autouse=True)
def more_workers_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets tests ask for any number of workers, on machines of any size."""
    if "engine.runtime.threads" in sys.modules:
        monkeypatch.setattr(sys.modules["engine.runtime.threads"], "most_workers", lambda: 64)
