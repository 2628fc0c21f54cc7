"""All cases, and the public names that have none, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from tests.differential.case import Case
from tests.differential.compiled_cases import COMPILED_CASES
from tests.differential.frameworks import KINDS, Framework
from tests.differential.layer_cases import LAYER_CASES
from tests.differential.preprocessing_cases import PREPROCESSING_CASES

CASES: list[Case] = [*LAYER_CASES, *PREPROCESSING_CASES, *COMPILED_CASES]
BASES = {"Wrapper", "AbstractRNNCell"}
"""Base classes of their kind, which do nothing by themselves and are not counted."""
HOST = "HLO has no such data; put the layer into the input pipeline"
OTHER_BACKEND = "wraps code of another backend; the engine runs Keras on TensorFlow"
WITHOUT_CASE: dict[str, str] = {
    "StringLookup": f"strings: {HOST}",
    "TextVectorization": f"strings: {HOST}",
    "MaxNumBoundingBoxes": f"dictionaries of boxes, whose number differs from image to image: {HOST}",
    "DenseFeatures": f"feature columns, of strings and sparse tensors: {HOST}",
    "JaxLayer": OTHER_BACKEND,
    "FlaxLayer": OTHER_BACKEND,
    "TorchModuleWrapper": OTHER_BACKEND,
}


@dataclass(frozen=True)
class Entry:
    """A public name with its cases, or with the reason why it has none."""

    kind: str
    name: str
    cases: tuple[Case, ...]
    reason: str = ""


def entries(framework: Framework) -> list[Entry]:
    """Every public name of the framework, in the order of KINDS; base classes left out."""
    return [
        Entry(kind, name, _cases(framework, kind, name), WITHOUT_CASE.get(name, ""))
        for kind in KINDS
        for name in framework.public_names(kind)
        if name not in BASES
    ]


def _cases(framework: Framework, kind: str, name: str) -> tuple[Case, ...]:
    named = (case for case in CASES if (case.kind, case.name) == (kind, name))
    return tuple(case for case in named if case.framework in ("", framework.name))


def forgotten(framework: Framework) -> list[str]:
    """Public names with neither a case nor a reason."""
    return [f"{each.kind}/{each.name}" for each in entries(framework) if not each.cases and not each.reason]
