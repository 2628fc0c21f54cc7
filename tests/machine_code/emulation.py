"""Runs Python for 64-bit ARM under QEMU: python -m tests.machine_code.emulation FOLDER [PYTHON ARGUMENT ...]

The folder gets a root of Debian's packages and wheels for ARM, which are kept, and a copy of the project with codelets
as its wheels have them. The first time takes some ten minutes, most of them for downloads, and needs to be root:

    apt-get install qemu-user-static debootstrap
    python -m tests.machine_code.emulation /tmp/arm -m pytest tests/codelets/test_contract.py
    python -m tests.machine_code.emulation /tmp/arm -m tests.fuzz.mutants --count 100
"""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from engine.machine_code.instruction_sets import AARCH64

ROOT = Path(__file__).parent.parent.parent
QEMU, DEBOOTSTRAP = "qemu-aarch64-static", "debootstrap"
PROCESSOR = "neoverse-n1"
"""QEMU's and LLVM's name. It is given, since an emulated process finds this machine's name and features."""
RELEASE, PYTHON = "bookworm", "python3.11"
COMPILED = ("numpy", "numba", "llvmlite", "ml_dtypes")
"""Packages whose versions are those of this process; those of OTHERS may be newer."""
OTHERS = ("pytest", "hypothesis", "uvicorn", "starlette", "orjson", "prometheus-client")
BARE = ("numpy", "numpy.libs", "ml_dtypes", "sitecustomize.py")
"""Packages of a process without a compiler, beside the engine."""
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
COPIED = ("engine", "tests", "benchmarks")
CROSS = {
    "NUMBA_CPU_NAME": AARCH64[0],
    "NUMBA_CPU_FEATURES": AARCH64[1],
    "SOFTWARE_IPU_CACHE_BYTES": str(1 << 19),
}
"""Variables by which this machine compiles for ARM: in seconds, where the emulated compiler takes minutes."""
ARCHIVE = "import sys; from engine.installation import write_archive; write_archive(sys.argv[1])"


def missing() -> str:
    """The reason why this machine cannot emulate; an empty text if it can."""
    absent = [name for name in (QEMU, DEBOOTSTRAP, "dpkg-deb") if shutil.which(name) is None]
    if absent:
        return f"there is no {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "debootstrap needs to be root"


def prepare(folder: Path) -> None:
    """Makes what the folder lacks, and copies the project into it; one process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _make_root(folder / "root")
            _make_packages(folder)
            (folder / "made").touch()
        digest = _digest()
        mark = folder / "project/digest"
        if not mark.exists() or mark.read_text() != digest:  # else another process may be using the copy
            _copy_project(folder)
            mark.write_text(digest)


def _make_root(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    options = ("--foreign", "--arch=arm64", "--variant=minbase", f"--include={PYTHON}")
    subprocess.run([DEBOOTSTRAP, *options, RELEASE, root], check=True, stdout=subprocess.DEVNULL)
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


def _make_packages(folder: Path) -> None:
    site, bare, python = folder / "site", folder / "bare", folder / "python"
    for each in (site, bare):
        shutil.rmtree(each, ignore_errors=True)
    wanted = [*(f"{name}=={metadata.version(name)}" for name in COMPILED), *OTHERS]
    options = ["--only-binary=:all:", *(f"--platform={name}" for name in PLATFORMS)]
    options += ["--implementation=cp", f"--python-version={PYTHON.removeprefix('python')}", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *options, *wanted], check=True)
    command = f"{shutil.which(QEMU)} -cpu {PROCESSOR} -L {folder}/root {folder}/root/usr/bin/{PYTHON}"
    python.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    python.chmod(0o755)
    (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(python)!r}\n")
    bare.mkdir()
    for name in BARE:
        (bare / name).symlink_to(site / name)


def _digest() -> str:
    """A hash of all sources that the emulation has a copy of."""
    content = hashlib.sha256()
    for path in sorted(path for name in COPIED for path in (ROOT / name).rglob("*.py")):
        content.update(f"{path} ".encode() + path.read_bytes())
    return content.hexdigest()


def _copy_project(folder: Path) -> None:
    """Copies the engine and the tests, with codelets for ARM that this machine compiles. The cache begins empty."""
    project = folder / "project"
    for each in (project, folder / "cache"):
        shutil.rmtree(each, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "objects"))
    shutil.copy(ROOT / "pyproject.toml", project)
    objects = project / "engine/data/objects"
    objects.mkdir()
    variables = {**CROSS, "XDG_CACHE_HOME": str(folder / "cross"), "PYTHONPATH": str(project)}
    command = [sys.executable, "-c", ARCHIVE, str(objects)]
    subprocess.run(command, check=True, cwd=project, env=os.environ | variables, stderr=subprocess.DEVNULL)
    if PYTHON == f"python{sys.version_info.major}.{sys.version_info.minor}":  # whose bytecode is the same
        for each in (project, folder / "root/usr/lib" / PYTHON):
            compileall.compile_dir(each, quiet=2)


def run(
    folder: Path, arguments: Sequence[str], workers: int = 0, packages: str = "site", log: Path | None = None
) -> subprocess.Popen[bytes]:
    """Begins Python in the emulation, after `prepare`, with a number of workers if one is given.

    `packages` is `bare` for a process without a compiler. What the process prints goes to `log`.
    """
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "NUMBA_NUM_THREADS") if name in os.environ},
        "NUMBA_CPU_NAME": PROCESSOR,
        "NUMBA_CPU_FEATURES": AARCH64[1],
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("project", packages)),
        "OPENBLAS_NUM_THREADS": "1",
        **({"NUMBA_NUM_THREADS": str(workers)} if workers else {}),
    }
    command = [str(folder / "python"), *arguments]
    if log is None:
        return subprocess.Popen(command, cwd=folder / "project", env=environment)
    with log.open("w") as output:
        return subprocess.Popen(command, cwd=folder / "project", env=environment, stdout=output, stderr=output)


if __name__ == "__main__":
    if reason := missing():
        sys.exit(f"Expected a machine with QEMU. Received: {reason}.")
    place = Path(sys.argv[1]).resolve()
    prepare(place)
    sys.exit(run(place, sys.argv[2:]).wait())
