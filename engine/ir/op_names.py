"""Layer and operation in the op_name of an instruction, which the front end recorded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache

BACKWARD = "gradient_tape"
RECOMPUTED = "recomputed"
"""Outermost scope of instructions that the backward pass of a step computes a second time."""
STAGE = "ipu_stage_"
"""Prefix of the name of a pipeline stage's scope; its number follows."""
STAGE_SCOPE = re.compile(rf"(?:^|/){STAGE}(\d+)(?:_\d+)?(?=/|$)")
GRADIENT_SCOPE = re.compile(r"(?:^|/)gradient(?:_tape|s)(?:_\d+)?(?=/|$)")
LOWER_CASE_OPERATIONS = frozenset(
    {"convolution", "depthwise", "moments", "batchnorm", "einsum", "dropout", "stateless_dropout"}
)
"""Operations and groups of them that Keras writes in lower case, like its layers."""
GENERATED = re.compile(r"ipu_stage_\d+(_\d+)?|(Stateful)?PartitionedCall(_\d+)?|while(_\d+)?|")
"""Scopes that no program writes: stages of pipelines, calls and loops."""
GRADIENTS, GRADIENT = "gradients", "_grad"
"""Scope of the gradients of a loop's body or a graph, and end of the scope of each operation's gradient in it."""
WHOLE = "whole_path"
"""Outermost scope of operations whose names keep all other scopes, also the one that otherwise is the model's."""
DROPOUT = "dropout"
"""An operation, and also the name of the first layer of its kind, which follows the model."""


@lru_cache(maxsize=8192)
def readable_name(op_name: str, default: str = "") -> str:
    """`gradient_tape/model/block_1/dense_1/MatMul/MatMul_1` becomes `block_1/dense_1 MatMul (backward)`."""
    scope, operation, backward = _split(op_name)
    if not operation:
        return default or "unnamed"
    layer, operation = _layer(scope), _base(operation)
    words = [layer, operation] if layer and layer != operation else [operation]
    suffix = "(recomputed)" if op_name.startswith(f"{RECOMPUTED}/") else "(backward)" if backward else ""
    return " ".join(filter(None, [*words, suffix]))


@lru_cache(maxsize=8192)
def layer_of(op_name: str) -> str:
    """The path of the layer (or optimizer, or loss) of an op_name; empty if it has none."""
    return _layer(_split(op_name)[0])


def ambiguous_scopes(op_names: Collection[str]) -> set[str]:
    """Outermost scopes without which layers have equal paths: a and b of a/dense and b/dense."""
    written = (_written(op_name) for op_name in op_names)
    # Telling scopes from operations takes long, and few programs have equal scopes below others.
    if not _apart((parts[1:2], parts[0]) for parts in written if len(parts) > 2):
        return set()
    scopes = (_split(op_name)[0] for op_name in op_names)
    return _apart((scope[1:], scope[0]) for scope in scopes if len(scope) > 1)


def _apart(paths: Iterable[tuple[list[str], str]]) -> set[str]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, outermost in paths:
        found["/".join(path)].add(outermost)
    return {each for several in found.values() if len(several) > 1 for each in several}


def outermost_scope(op_name: str) -> str:
    """The outermost scope that a program writes; empty if there is none."""
    return next(iter(_split(op_name)[0]), "")


def in_scope_of(op_name: str, other: str) -> str:
    """The op_name with the scope of another operation."""
    scope, parts = _split(other)[0], other.split("/")
    at = len(parts) - parts[::-1].index(scope[-1]) if scope else 0
    return "/".join([*parts[:at], op_name])


def _layer(scope: list[str]) -> str:
    """The path below the outermost scope, which is the model, or else the optimizer."""
    return "/".join(scope[1:] or scope)


def _split(op_name: str) -> tuple[list[str], str, bool]:
    """Scopes, operation, and whether it is of the backward pass; scopes that no program writes are left out."""
    every, parts = op_name.split("/"), _written(op_name)
    backward = BACKWARD in every or GRADIENTS in every
    if not parts:
        return [], "", backward
    first = 2 if parts[1:2] == [DROPOUT] and len(parts) > 2 else 1
    at = next((k for k in range(first, len(parts)) if _is_operation(parts, k)), len(parts) - 1)
    return [] if parts[:at] == [parts[at]] else parts[:at], parts[at], backward


def _written(op_name: str) -> list[str]:
    """The parts that a program writes; of gradients in a loop only the parts after GRADIENTS, and WHOLE."""
    parts = [part for part in op_name.split("/") if not _is_generated(part)]
    if GRADIENTS in parts[:-1]:
        head = parts[:1] if parts[0] == WHOLE else []
        parts = head + parts[len(parts) - parts[::-1].index(GRADIENTS) :]
    return parts


@lru_cache(maxsize=8192)
def _is_generated(part: str) -> bool:
    return part in (BACKWARD, RECOMPUTED) or GENERATED.fullmatch(part) is not None


def _is_operation(parts: list[str], at: int) -> bool:
    """Whether a part is an operation; with a capital letter it is a layer if an operation in lower case follows."""
    if parts[at].endswith(GRADIENT):
        return True
    if parts[at][:1].isupper():
        return not any(_base(part) in LOWER_CASE_OPERATIONS for part in parts[at + 1 : at + 2])
    return parts[at] in LOWER_CASE_OPERATIONS or _base(parts[at]) in LOWER_CASE_OPERATIONS - {DROPOUT}


def _base(part: str) -> str:
    return re.sub(r"_\d+$", "", part.removesuffix(GRADIENT))


def stage_in(op_name: str) -> int | None:
    """The pipeline stage in whose scope a name is; None outside of all stages."""
    found = STAGE_SCOPE.findall(op_name)
    return int(found[-1]) if found else None


def in_gradient_scope(op_name: str) -> bool:
    """Whether a name belongs to an operation of gradients."""
    return GRADIENT_SCOPE.search(op_name) is not None
