"""No two public classes of the project share a name, so that a name in a traceback or a search means one class."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.test_rooms import ROOT, source_files

OF_THE_REFERENCE = frozenset({"PopnnGRU", "PopnnLSTM", "RunConfig"})
"""Names that two modules of the reference have."""
PACKAGES = frozenset({"engine", "ipu", "keras_ext"})


def test_public_classes_have_names_of_their_own() -> None:
    found = defaultdict(list)
    for path in source_files():
        name = path.relative_to(ROOT)
        if name.parts[0] in PACKAGES:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{name}:{node.lineno}")
    assert len(found) > 500
    shared = {name: places for name, places in found.items() if len(places) > 1 and name not in OF_THE_REFERENCE}
    assert not shared, f"Expected a name for one class each. Received: {shared}"
