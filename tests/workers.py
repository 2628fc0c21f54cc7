"""Tests of one collection in forked workers, a file at a time: the plugin of `python -m tests`.

Imports and collection take 20 seconds of processor time, a fork none. TensorFlow starts threads, which a fork would
lose, with its first operation, so modules of tests run no operation while they are imported.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from tests import exploring, forking
from tests.interrupting import threads_of_system

FORK = multiprocessing.get_context("fork")
MOST_KILOBYTES = 2_500_000
"""Memory above which a worker is replaced after its file; the first workers only after all of their files. TensorFlow
keeps some ten megabytes of every model that was ever traced."""
WAITING = 2
"""Additional workers, which mostly wait for other processes. With one of them, two cores had nothing to do
for a tenth of the time."""
ENDS_SECONDS = 10.0
"""Seconds for an interrupted worker to tear down its fixtures, which end the processes that they have started."""

Items = list[pytest.Item]


@dataclass
class _Worker:
    """A process, the items of the file that it runs, and the reports that it has sent of them."""

    process: ForkProcess
    takes_first: bool
    items: Items = field(default_factory=list)
    reports: list[pytest.TestReport] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)

    def left(self) -> Items:
        """Items that have not ended."""
        ended = {report.nodeid for report in self.reports if report.when == "teardown"}
        return [item for item in self.items if item.nodeid not in ended]


class Workers:
    """Forks `count` workers, and two more that begin with the files of `goes_first`; the others run those last."""

    def __init__(self, count: int, goes_first: Callable[[Path], bool]) -> None:
        self.count = count
        self.goes_first = goes_first
        self.first: deque[Items] = deque()
        self.others: deque[Items] = deque()
        self.running: dict[Connection, _Worker] = {}
        self.interrupted: list[str] = []

    def pytest_collection(self, session: pytest.Session) -> None:
        """Starts the server of new processes, which imports while this process collects."""
        if session.config.rootpath == forking.ROOT and not session.config.option.collectonly:
            forking.start_server()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None
        if "tf_Compute" in threads_of_system().values():
            session.shouldfail = "A module of tests runs an operation while it is imported: workers cannot be forked."
            raise session.Failed(session.shouldfail)
        files: dict[Path, Items] = {}
        for item in session.items:
            files.setdefault(item.path, []).append(item)
        # Long files come first, so that the workers end at about the same time.
        for path in sorted(files, key=lambda path: not any(item.get_closest_marker("slow") for item in files[path])):
            (self.first if self.goes_first(path) else self.others).append(files[path])
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # in which those of workers are
        # A test that hangs has printed where by then; it fails as if its worker crashed. Tests of --all may take
        # longer.
        says_where = 0.0 if exploring.seed() is not None else float(session.config.getini("faulthandler_timeout"))
        limit = 2.0 * says_where or math.inf
        try:
            for number in range(WAITING + self.count):
                self._fork(session, takes_first=number < WAITING)
            while self.running:
                for pipe in wait([*self.running], timeout=min(limit, 3600.0) / 10):
                    assert isinstance(pipe, Connection)
                    self._receive(session, pipe)
                for worker in self.running.values():
                    if time.monotonic() > worker.heard + limit:
                        worker.process.kill()
        except KeyboardInterrupt:
            self._receive_reports(session)
            self.interrupted = [left[0].nodeid for worker in self.running.values() if (left := worker.left())]
            with suppress(session.Failed, session.Interrupted):
                _show(session, [report for worker in self.running.values() for report in worker.reports])
            raise
        finally:
            self._stop()
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, gigabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6
        terminalreporter.write_line(
            f"The workers took {seconds:.0f} s of processor time, the largest {gigabytes:.1f} GB of memory."
        )
        for name in self.interrupted:
            terminalreporter.write_line(f"Interrupted: {name}")

    def _stop(self) -> None:
        """Ends the workers that still run, and the processes that their tests and fixtures have started."""
        processes = [worker.process for worker in self.running.values()]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)  # type: ignore[arg-type]  # it was started
        end = time.monotonic() + ENDS_SECONDS
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
            process.kill()
            process.join()

    def _fork(self, session: pytest.Session, takes_first: bool) -> None:
        if not (self.others or self.first):
            return
        pipe, other_end = FORK.Pipe()
        process = FORK.Process(target=_work, args=(session, other_end, [*self.running, pipe]))
        process.start()
        other_end.close()
        self.running[pipe] = _Worker(process, takes_first)
        self._send_next(pipe)

    def _send_next(self, pipe: Connection) -> None:
        """Makes a worker run the next file, or end."""
        worker = self.running[pipe]
        order = (self.first, self.others) if worker.takes_first else (self.others, self.first)
        files = next(filter(None, order), deque())
        worker.items, worker.reports = files.popleft() if files else [], []
        pipe.send([item.nodeid for item in worker.items])

    def _receive(self, session: pytest.Session, pipe: Connection) -> None:
        """Takes a report, the kilobytes of a worker whose file has ended, or the end of a worker."""
        worker = self.running[pipe]
        worker.heard = time.monotonic()
        message = None
        with suppress(EOFError, OSError):
            message = pipe.recv()
        if message is None:
            self._end(session, pipe)
            return
        if isinstance(message, dict):
            worker.reports.append(_report(session, message))
            return
        _show(session, worker.reports)
        if message > MOST_KILOBYTES and not (worker.takes_first and self.first):
            worker.items, worker.reports = [], []
            pipe.send([])
        else:
            self._send_next(pipe)

    def _receive_reports(self, session: pytest.Session) -> None:
        """Takes the reports that workers sent before an interruption, and sends no more files."""
        for pipe, worker in self.running.items():
            with suppress(EOFError, OSError):
                while pipe.poll() and isinstance(message := pipe.recv(), dict):
                    worker.reports.append(_report(session, message))

    def _end(self, session: pytest.Session, pipe: Connection) -> None:
        """Forgets a worker that has ended. If it ended in a test, that test has failed; a new worker runs the rest."""
        worker = self.running.pop(pipe)
        pipe.close()
        worker.process.join()
        if worker.process.exitcode or worker.items:
            interrupted, *rest = worker.left() or session.items[-1:]
            when = "that ran this test ended" if worker.items else "ended, after its tests,"
            text = f"The worker {when} with exit code {worker.process.exitcode}."
            nodeid, location = interrupted.nodeid, interrupted.location
            report = pytest.TestReport(nodeid, location, {}, "failed", text, "teardown")
            _show(session, [*worker.reports, report])
            if rest:
                self.others.appendleft(rest)
        self._fork(session, worker.takes_first)


def _report(session: pytest.Session, message: dict[str, Any]) -> pytest.TestReport:
    """The report that a worker has sent."""
    report: pytest.TestReport = session.config.hook.pytest_report_from_serializable(config=session.config, data=message)
    return report


def _show(session: pytest.Session, reports: Iterable[pytest.TestReport]) -> None:
    """Reports the tests of a file to pytest, as if they had just run here."""
    hook = session.config.hook
    for report in reports:
        if report.when == "setup":
            hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


class _Sending:
    """A plugin that sends the reports of a worker's tests to the process that shows them."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self.config = config
        self.pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.pipe.send(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _work(session: pytest.Session, pipe: Connection, ends_of_parent: list[Connection]) -> None:
    """The life of a worker: runs tests by the names that it receives, until no names come or the parent has ended."""
    for each in ends_of_parent:  # otherwise the pipe would outlive the parent
        each.close()
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        try:
            _run(session, pipe)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is followed by the parent's
            session._setupstate.teardown_exact(None)


def _run(session: pytest.Session, pipe: Connection) -> None:
    config: Any = session.config
    folders = config._tmp_path_factory
    folders._basetemp = folders.getbasetemp() / f"worker-{os.getpid()}"
    folders._basetemp.mkdir(mode=0o700)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Sending(config, pipe))
    captured = config.pluginmanager.getplugin("capturemanager")
    captured.stop_global_capturing()  # files that the workers would share
    captured.start_global_capturing()
    captured.suspend_global_capture()
    forking.use_server_of_parent()
    items = {item.nodeid: item for item in session.items}
    while names := pipe.recv():
        # Fixtures of the session last until the last file.
        following = [items[name] for name in names[1:]]
        for name, next_node in zip(names, [*following, session], strict=True):
            config.hook.pytest_runtest_protocol(item=items[name], nextitem=next_node)
            if session.shouldfail or session.shouldstop:
                break
        pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
