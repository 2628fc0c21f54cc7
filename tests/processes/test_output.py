"""Output of several processes: labels, events for the launcher, and the process that failed first."""

from __future__ import annotations

import io

import pytest

from ipu._internal.processes.output import Output

RULE = "-" * 70


def forwarded(*lines: str) -> tuple[Output, str]:
    """Forwards lines of stderr, and returns the bytes that were written."""
    output, out = Output(), io.BytesIO()
    output.forward([f"{line}\n".encode() for line in lines], out)
    return output, out.getvalue().decode()


def test_lines_are_labelled_and_events_are_not_shown() -> None:
    output, text = forwarded(
        *(f"[7,{rank}]<stderr>: \0begin of MPI" for rank in range(3)),
        "[7,1]<stderr>: half\0end of MPI",
        "[7,0]<stderr>: \0[7,2]<stderr>: whole",
        "[7,0]<stderr>: ",
    )
    assert text == "[1] half\n[2] whole\n" and output.lost() == [0, 2] and not output.aborted.is_set()
    assert forwarded("[7,0]<stderr>: \0abort of MPI")[0].aborted.is_set()


def test_output_that_ends_without_a_newline_keeps_its_label() -> None:
    assert forwarded("[7,1]<stdout>: a[7,0]<stdout>: b [1] c", "[7,0]<stdout>: d")[1] == "[1] a\n[0] b [1] c\n[0] d\n"


@pytest.mark.parametrize(
    ("notice", "told"),
    [
        (["prterun noticed that process rank 1 with PID 5 on node a exited on", "signal 9 (Killed)."],
         "process 1 on a ended first: exited on signal 9 (Killed)"),
        (["Process name: [prterun-a-1@1,1]", "Exit code:    3"], "process 1 ended first: exit status 3"),
        (["MPI_ABORT was invoked on rank 1 in"], 'process 1 ended first: calling "abort"'),
    ],
)  # fmt: skip
def test_the_error_of_the_first_that_failed_is_the_last(notice: list[str], told: str) -> None:
    error = [
        f"[7,1]<stderr>: {line}" for line in ("Traceback (most recent call last):", "  line", "ValueError: a", "b")
    ]
    closing = [RULE, *notice, RULE]
    assert forwarded(*error, *closing)[0].failure() == told
    others = "[7,0]<stderr>: ProcessError: of another"
    assert forwarded(*error, others, *closing)[0].failure() == f"{told}:\nValueError: a\nb"
    assert forwarded(others)[0].failure() == "MPI's launcher has ended all processes"


def test_warnings_of_a_killed_process_are_not_its_error() -> None:
    notice = "prterun noticed that process rank 1 with PID 5 on node a exited on signal 9 (Killed)."
    lines = ["[7,1]<stderr>: WARNING: a", "[7,0]<stderr>: of another", RULE, notice, RULE]
    assert forwarded(*lines)[0].failure() == "process 1 on a ended first: exited on signal 9 (Killed)"


class Broken(io.BytesIO):
    """An output that nothing reads any more."""

    def write(self, data: object) -> int:
        raise BrokenPipeError


def test_an_output_that_is_closed_leaves_no_process_waiting_with_a_full_pipe() -> None:
    output, lines = Output(), iter([b"[7,0]<stdout>: a\n", b"[7,0]<stdout>: b\n"])
    output.forward(lines, Broken())
    assert isinstance(output.broken, BrokenPipeError) and output.aborted.is_set() and next(lines, None) is None
