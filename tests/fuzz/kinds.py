"""The kinds of random things that a campaign checks, each a function from a seed to the outcome."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

OUTCOMES = ("same", "refused", "too long")


class Kind(NamedTuple):
    """`check(seed)` returns one of OUTCOMES or the text of a failure, cut down; `share` is of a campaign's time.

    A process ends after some checks: TensorFlow keeps functions and kernels, which would make later ones slower. Kinds
    that run without TensorFlow have more, since the first checks of a process load the engine.
    """

    check: Callable[[int], str]
    share: float
    limit_seconds: float
    repeat: str
    checks_of_a_process: int = 200


def _program(seed: int) -> str:
    """A random program against XLA."""
    from tests.fuzz.generate import generate
    from tests.fuzz.oracle import check
    from tests.fuzz.runs import RefusedByXLA
    from tests.fuzz.shrink import report

    program = generate(seed)
    try:
        check(program)
    except RefusedByXLA:
        return "refused"
    except Exception as failure:  # every other error is a fault
        return report(program, failure)
    return "same"


def _mutant(seed: int) -> str:
    """A changed module against the definitions of its operations."""
    from tests.fuzz.mutants import Mutant, check, first_wrong

    mutant = Mutant(seed)
    try:
        end = check(mutant)
    except Exception as error:  # every error that check does not expect is a fault
        end = repr(error)
    return end if end in OUTCOMES else f"{end}\nfirst: {first_wrong(mutant)}"


def _model(seed: int) -> str:
    """A random Keras model in training against Keras."""
    from tests.fuzz.keras_models import RandomModel
    from tests.fuzz.models import check

    model = RandomModel(seed)
    end = check(model)
    return "refused" if end.startswith("refused") else end if end in OUTCOMES else f"{model}\n{end}"


def _crossing(seed: int) -> str:
    """Checks a whole Keras program against plain Keras; a failure is cut down to the features that it needs."""
    from tests.crossings.check import check, stand_alone
    from tests.crossings.documented import AWAITED, exclusions
    from tests.crossings.generate import generate
    from tests.crossings.plan import Plan
    from tests.crossings.shrink import shrink

    plan = generate(seed, without=exclusions(AWAITED))
    found = check(plan)
    if not found:
        return "same"
    if found[0].startswith("refused"):
        return "refused"

    def fails(candidate: Plan) -> bool:
        lines = check(candidate)
        return bool(lines) and ("Error" in lines[0]) == ("Error" in found[0]) and not lines[0].startswith("refused")

    small = shrink(plan, fails)
    return "\n".join([f"--plan '{plan}'", f"--plan '{small}'", *(check(small) or found)[:12], stand_alone(small)])


@cache
def _originals() -> tuple[list[bytes], str]:
    """Executables, and the manifest of an export."""
    from engine.serving.manifest import FILE_NAME, Manifest, TensorManifest
    from tests.files.hostile import programs

    tensor = TensorManifest("x", "float32", (2, 3))
    with tempfile.TemporaryDirectory() as folder:
        Manifest("a.popef", 1, (tensor,), (tensor,), (tensor,), (tensor,), False, False, None).write(Path(folder))
        return list(programs()), Path(folder, FILE_NAME).read_text()


def damaged(content: bytes, choose: random.Random) -> bytes:
    """The bytes with some changed, left out, repeated or added."""
    data = bytearray(content)
    for _ in range(choose.choice((1, 1, 2, 8))):
        at, size = choose.randrange(len(data) + 1), choose.choice((1, 1, 4, 64, 4096))
        change = choose.randrange(5)
        if change == 0:
            del data[at:]
        elif change == 1:
            del data[at : at + size]
        elif change == 2:
            data[at:at] = choose.randbytes(size)
        elif change == 3:
            data[at:at] = data[at : at + size]
        elif data:
            data[at % len(data)] ^= 1 << choose.randrange(8)
    return bytes(data)


def _file(seed: int) -> str:
    """Checks a tampered file, with right checksums or without."""
    from engine.errors import IPUError
    from engine.files.executable_file import from_bytes
    from engine.serving.manifest import FILE_NAME, read_manifest
    from tests.files.hostile import attempt, tamper

    choose = random.Random(seed)
    executables, manifest = _originals()
    way = choose.choices(("sealed", "bytes", "manifest", "text"), (6, 2, 1, 1))[0]
    with np.errstate(all="ignore"):
        if way == "sealed":
            return attempt(choose.choice(executables), choose).replace("ran", "same")
        try:
            if way == "bytes":
                from_bytes(damaged(choose.choice(executables), choose), "a damaged file")
            else:
                with tempfile.TemporaryDirectory() as folder:
                    assets = Path(folder, "assets")
                    assets.mkdir()
                    values: Any = json.loads(manifest)
                    tamper(values, choose)
                    content = json.dumps(values).encode() if way == "manifest" else damaged(manifest.encode(), choose)
                    (assets / FILE_NAME).write_bytes(content)
                    read_manifest(Path(folder))
        except IPUError:
            return "refused"
    return "same"


KINDS = {
    "programs": Kind(_program, 0.3, 600, "python -m tests.fuzz --seeds {seed}"),
    "mutants": Kind(_mutant, 0.3, 900, "python -m tests.fuzz.mutants --seed {seed} --count 1", 5000),
    "models": Kind(_model, 0.15, 900, "python -m tests.fuzz.models --seed {seed} --count 1"),
    "files": Kind(_file, 0.1, 300, "python -m tests.fuzz --only files --seed {seed} --count 1", 20_000),
    "crossings": Kind(_crossing, 0.15, 900, "python -m tests.crossings --seed {seed} --count 1"),
}
