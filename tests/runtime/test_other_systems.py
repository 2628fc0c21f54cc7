"""Systems without Linux' calls and files, which are all hidden here: programs run as before."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.interrupting import HANGS_SECONDS

PROGRAM = """
import builtins, io, os, resource, sys
import numba, numpy as np, tests.engine.running  # what is of other packages asks for the system, too
for name in [name for name in sys.modules if name.startswith(("engine", "tests"))]:
    del sys.modules[name]
sys.platform = "darwin"
for name in ("sched_getaffinity", "sched_setaffinity"):
    delattr(os, name)
del resource.RUSAGE_THREAD
plain = io.open
def opened(file, *arguments, **options):
    if str(file).startswith("/proc"):
        raise FileNotFoundError(file)
    return plain(file, *arguments, **options)
builtins.open = io.open = opened

from engine.errors import ConfigurationError
from engine.ir.builder import Builder
from engine.machine_code import instruction_sets
from engine.runtime import executable, workers
from engine.runtime.native_threads import has_native_threads
from engine.runtime.threads import usable_cores
from ipu._internal.commands.machine import listing
from ipu._internal.processes import launcher, signs
from tests.engine.running import check

began, begin = [], workers.PythonThreadPool.begin
workers.PythonThreadPool.begin = lambda pool: (began.append(pool), begin(pool))
executable.inline_work = lambda: 0  # no call is too small for its threads
b = Builder()
check(b.module(b.elementwise("tanh", b.dot(b.parameter("f32", (33, 40)), b.parameter("f32", (40, 21))))))
assert began and not has_native_threads() and usable_cores() == os.cpu_count()
assert any(line.startswith("processor") for line in listing())
assert signs.state_of(os.getpid()) is None
launcher.mpiexec, launcher._end_with_parent = lambda: "true", lambda: 1 / 0
assert launcher.launch(["x.py"], 2) == 0
try:
    instruction_sets.check_flags(["avx2"], "a.objects")
    raise SystemExit("expected an error")
except ConfigurationError as error:
    assert "darwin" in str(error)
print("fine")
"""


def test_programs_run_without_linux() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.strip() == "fine", done.stderr[-3000:]
