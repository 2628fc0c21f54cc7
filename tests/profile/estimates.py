"""Cost reports of modules in a file, as JSON. The engine finds the instruction set at import, so each needs a process.

python -m tests.profile.estimates FILE. The file is a pickle of (name, module, roles, constants) for each module.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from engine.compile import build_program
from engine.machine_code.processor import lanes
from engine.profile.program_estimate import estimate
from engine.target import target

MK2 = target("ipu2")


def figures(module: Any, roles: list[str], constants: dict[int, Any]) -> dict[str, Any]:
    """Cycles of each compute set, and for each tile the bytes that are always live and the most bytes."""
    found = estimate(build_program(module, roles, constants), MK2)
    return {
        "sets": [[each.name, each.compute, each.exchange, each.sync, each.tiles] for each in found.costs],
        "always live": found.tiles.always_live_bytes.tolist(),
        "most": found.tiles.peak_bytes.tolist(),
    }


if __name__ == "__main__":
    given = pickle.loads(Path(sys.argv[1]).read_bytes())
    made = {name: figures(module, roles, constants) for name, module, roles, constants in given}
    print(json.dumps({"lanes": lanes(), "compiler": "numba" in sys.modules, "estimates": made}))
