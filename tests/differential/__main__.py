"""Compares all of Keras on the engine with Keras on TensorFlow: `python -m tests.differential --write`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "keras_coverage.md"
KEPT = Path(__file__).with_name("results.json")
"""The records the page is made from, so that one kind can be run again without the others."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--framework", choices=("keras", "tf_keras"), action="append", help="both, unless given")
    parser.add_argument("--kind", action="append", help="layers, losses ...: all, unless given")
    parser.add_argument("--only", default="", help="a regular expression that a case's kind/name must contain")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (as many as cores)")
    parser.add_argument("--write", action="store_true", help=f"puts what was run into {PAGE.name}; not with --only")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("Expected --write with whole kinds. Received: --only. Use --kind.")

    # The processes that compare inherit it.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

    from tests.differential.frameworks import framework
    from tests.differential.report import records, summary
    from tests.differential.running import run

    failed = False
    for name in arguments.framework or ["keras", "tf_keras"]:
        chosen = framework(name)
        found = records(run(chosen, arguments.kind, arguments.only, arguments.jobs))
        print(summary(name, found), flush=True)
        failed |= any(record["good"] < record["not refused"] for record in found.values())
        if arguments.write:
            keep(name, chosen.keras.__version__, found)
    return 1 if failed else 0


def keep(name: str, version: str, found: dict[str, dict[str, object]]) -> None:
    """Replaces the framework's records of these kinds, and makes the page from all records."""
    from tests.differential.frameworks import KINDS
    from tests.differential.page import page

    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"versions": {}, "records": {}}
    kinds = kept["records"].get(name, {}) | found
    kept["records"][name] = {kind: kinds[kind] for kind in KINDS if kind in kinds}
    kept["versions"][name] = version
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=False) + "\n")
    PAGE.write_text(page(kept["records"], kept["versions"]))


if __name__ == "__main__":
    sys.exit(main())
