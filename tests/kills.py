"""Kills trainings at random moments, resumes them, and compares them with an undisturbed one.

python -m tests.kills keras|tf_keras|session|estimator|processes --count 100 [--seed S]

A process is killed by SIGKILL, the next one continues from what is left and is killed, too. After some kills one trains
to the end: its variables must have the bits of the undisturbed training.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests import forking

EPOCHS = 12
MOST_KILLS_OF_A_TRAINING = 5
SHARE = 0.3
"""The most of a training's time, after its first epoch or step, that a process trains: five kills find it at work."""


class Log:
    """Progress of a training, in lines of a file that survives a kill; the second place starts the time to the kill.

    Until then, most of the time the program is compiled and nothing is written. A negative time counts from the first.
    """

    def __init__(self, path: Path, seconds: float | None) -> None:
        self._path, self._seconds, self._places = path, seconds, 0

    def write(self, line: str) -> None:
        """Appends a line, with the time."""
        with self._path.open("a") as file:
            file.write(f"{time.monotonic()} {line}\n")

    def at(self, place: int) -> None:
        """Notes where the training is, an epoch or a step."""
        self.write(f"at {place}")
        self._places += 1
        if self._seconds is not None and (self._places == 2 or self._seconds < 0):
            threading.Timer(abs(self._seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()
            self._seconds = None

    def callback(self, keras: Any) -> Any:
        """A Keras callback that notes the epochs."""
        return keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: self.at(epoch))

    def hook(self) -> Any:
        """A hook of TensorFlow's sessions that notes the global steps."""
        from tests.estimators.models import v1

        log = self

        class Steps(v1.train.SessionRunHook):  # type: ignore[misc]
            def after_create_session(self, session: Any, coord: object) -> None:
                log.at(int(session.run(v1.train.get_global_step())))

            def after_run(self, run_context: Any, run_values: object) -> None:
                log.at(int(run_context.session.run(v1.train.get_global_step())))

        return Steps()


def digest(values: Iterable[Any]) -> str:
    """A hash of arrays."""
    return hashlib.sha256(b"".join(np.asarray(value).tobytes() for value in values)).hexdigest()[:16]


def digest_of_checkpoint(folder: str) -> str:
    """A hash of all variables in the latest checkpoint of a folder."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(folder))
    return digest(reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map()))


def _keras(framework: str, folder: str, log: Log) -> str:
    from tests.keras.helpers import KITS
    from tests.keras.resuming import state, train

    return digest(state(train(framework, "arrays", Path(folder), log.callback(KITS[framework].keras), epochs=EPOCHS)))


def _session(folder: str, log: Log) -> str:
    from tests.graphs.programs.preempted import train

    train(folder, 60, [log.hook()])
    return digest_of_checkpoint(folder)


def _estimator(folder: str, log: Log) -> str:
    from tests.estimators.training import train

    train(folder, 160, hooks=(log.hook(),))
    return digest_of_checkpoint(folder)


class Kind(NamedTuple):
    """A kind of training: `train(folder, log)` returns a digest of its end, and a kill may undo `slack` places."""

    train: Callable[[str, Log], str]
    slack: int


KINDS = {
    "keras": Kind(lambda folder, log: _keras("keras", folder, log), 0),
    "tf_keras": Kind(lambda folder, log: _keras("tf_keras", folder, log), 0),
    "session": Kind(_session, 3),  # checkpoints of every two steps
    "estimator": Kind(_estimator, 12),  # of every eight, in loops of four
}


def attempt(kind: str, folder: str, log: str, seconds: float | None) -> None:
    """Trains in this process, which is killed `seconds` seconds after the training has begun."""
    progress = Log(Path(log), seconds)
    progress.write(f"digest {KINDS[kind].train(folder, progress)}")


def attempt_in_processes(folder: str, log: str, seconds: float | None, choose: random.Random) -> int:
    """Runs an attempt in two processes of `python -m ipu.run`, of which one or both are killed."""
    from tests.processes.test_launcher import PROGRAMS
    from tests.processes.test_training import run_in_forks

    ranks = "none" if seconds is None else choose.choice(("0", "1", "01"))
    work = Path(log).with_suffix(".forks")
    shutil.rmtree(work, ignore_errors=True)
    program = (str(PROGRAMS / "killed.py"), folder, log, str(seconds or 0.0), ranks)
    return run_in_forks(work, 2, ("--replicas", "1", "--workers", "1"), program)[0]


class Attempt(NamedTuple):
    """The outcome of a process: its places, the seconds from the second place, and the digest if it ended."""

    status: int
    places: list[int]
    seconds: float
    digest: str | None
    output: str


def attempted(kind: str, folder: Path, seconds: float | None, choose: random.Random) -> Attempt:
    """Runs one attempt in new processes."""
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    output = ""
    if kind == "processes":
        status: int | None = attempt_in_processes(str(folder), str(log), seconds, choose)
    else:
        status, output = forking.run(attempt, kind, str(folder), str(log), seconds)
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    places = [int(value) for _, what, value in lines if what == "at"]
    ends = [value for _, what, value in lines if what == "digest"]
    return Attempt(
        status or 0,
        places,
        float(lines[-1][0]) - float(lines[1][0]) if len(lines) > 1 else 0.0,
        ends[0] if ends else None,
        output,
    )


OUTCOMES = ("resumed", "resumed after the last", "restarted whole", "LOST", "FAILED")


class Tally:
    """Counts of the outcomes of kills."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._choose, self._slack = kind, random.Random(seed), KINDS[kind].slack if kind in KINDS else 0
        self.ends: Counter[str] = Counter()
        self._folder = Path(tempfile.mkdtemp(prefix="kills-"))
        self._trainings = 0
        whole = self._run(None)
        assert whole.digest, f"the undisturbed training ended with {whole.status}: {whole.output}"
        self._expected, self._seconds = whole.digest, whole.seconds

    def _run(self, seconds: float | None) -> Attempt:
        return attempted(self._kind, self._folder / str(self._trainings), seconds, self._choose)

    def training(self, kills: int) -> None:
        """Runs one training with `kills` kills, fewer if it ends before."""
        self._trainings += 1
        former: Attempt | None = None
        for left in range(kills, -1, -1):
            made = self._run(self._choose.uniform(-SHARE / 5, SHARE) * self._seconds if left else None)
            if former is not None:
                self.ends[self._became(former, made)] += 1
            if made.digest is not None:
                self.ends["trainings with " + ("the same bits" if made.digest == self._expected else "OTHER BITS")] += 1
                break
            former = made
            if not made.places or not left:
                self.ends["FAILED"] += 1
                print(f"ended with {made.status}: {made.output[-1500:]}", flush=True)
                break
        shutil.rmtree(self._folder / str(self._trainings), ignore_errors=True)

    def _became(self, killed: Attempt, made: Attempt) -> str:
        """The outcome of a kill, judged by where the next process began."""
        last = killed.places[-1]
        if made.places and made.places[0] >= last - self._slack:
            return "resumed"
        if made.places and made.places[0] == 0:
            return "restarted whole"
        if not made.places and made.digest is not None:
            return "resumed after the last"
        print(f"LOST: killed at {last}, then {made}", flush=True)
        return "LOST"

    def close(self) -> None:
        """Deletes the files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def kills(self) -> int:
        """The kills so far."""
        return sum(self.ends[end] for end in OUTCOMES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("kind", choices=(*KINDS, "processes"))
    parser.add_argument("--count", type=int, default=100, help="how many kills")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tally = Tally(arguments.kind, arguments.seed)
    try:
        while tally.kills < arguments.count:
            tally.training(min(MOST_KILLS_OF_A_TRAINING, arguments.count - tally.kills))
            print(f"{arguments.kind}: {tally.kills} kills, {dict(tally.ends)}", flush=True)
    finally:
        tally.close()
    return 1 if any(end.isupper() or "OTHER" in end for end in tally.ends) else 0


if __name__ == "__main__":
    sys.exit(main())
