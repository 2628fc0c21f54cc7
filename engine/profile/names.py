"""Readable names of compute sets, from the op_name that the front end recorded."""

from __future__ import annotations

import re

BACKWARD = "gradient_tape"
LOWER_CASE_OPERATIONS = frozenset({"convolution", "moments", "batchnorm", "einsum", "dropout"})
"""Operations and groups of them that Keras writes in lower case, as it does its layers."""


def readable_name(op_name: str, default: str = "") -> str:
    """`gradient_tape/sequential_1/dense_1/MatMul/MatMul_1` becomes `dense_1 MatMul (backward)`."""
    parts = [part for part in op_name.split("/") if part]
    backward = BACKWARD in parts
    parts = [part for part in parts if part != BACKWARD]
    if not parts:
        return default or "unnamed"
    # The first part is the model or the optimizer; a layer follows a model.
    at = next((k for k in range(1, len(parts)) if _is_operation(parts[k])), len(parts) - 1)
    operation = re.sub(r"_\d+$", "", parts[at])
    layer = parts[at - 1] if at else ""
    words = [layer, operation] if layer and layer != operation else [operation]
    return " ".join([*words, *(["(backward)"] if backward else [])])


def layer_of(op_name: str) -> str:
    """The layer (or optimizer, or loss) of an op_name; empty if it has none."""
    words = readable_name(op_name).split(" ")
    return words[0] if len(words) > 1 else ""


def _is_operation(part: str) -> bool:
    return part[:1].isupper() or part in LOWER_CASE_OPERATIONS
