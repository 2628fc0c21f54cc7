"""Layer and operation in the op_name of an instruction, which the front end recorded."""

from __future__ import annotations

import re
from functools import lru_cache

BACKWARD = "gradient_tape"
LOWER_CASE_OPERATIONS = frozenset({"convolution", "moments", "batchnorm", "einsum", "dropout"})
"""Operations and groups of them that Keras writes in lower case, like its layers."""
DROPOUT = "dropout"
"""An operation, and also the name of the first layer of its kind, which follows the model."""


@lru_cache(maxsize=8192)
def readable_name(op_name: str, default: str = "") -> str:
    """`gradient_tape/sequential_1/dense_1/MatMul/MatMul_1` becomes `dense_1 MatMul (backward)`."""
    parts = [part for part in op_name.split("/") if part]
    backward = BACKWARD in parts
    parts = [part for part in parts if part != BACKWARD]
    if not parts:
        return default or "unnamed"
    # The first part is the model or the optimizer; a layer follows a model.
    first = 2 if parts[1:2] == [DROPOUT] and len(parts) > 2 else 1
    at = next((k for k in range(first, len(parts)) if _is_operation(parts[k])), len(parts) - 1)
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
