"""The work of a compute set, apart from its cost, for tables of reports."""

from __future__ import annotations

from engine.frozen import frozen
from engine.ir.op_names import layer_of
from engine.profile.vertices import kind_of, work_of
from engine.program.program import ComputeSet
from engine.program.work.convolution import Convolution
from engine.program.work.fused_loop import FusedLoop

MOVES = frozenset({"copy", "transpose"})
"""Operations that compute nothing."""


UNMEASURED = {
    "sort": "sorts",
    "fft": "Fourier transforms",
    "rng-bit-generator": "random numbers",
    "reduce-window": "cumulative sums",
    "cholesky": "factorizations",
    "factorization": "factorizations",
    "gather": "look-ups and updates of rows",
    "scatter": "look-ups and updates of rows",
}
"""The kinds of work without a published figure, by opcode of an operation that is a compute set of its own."""


@frozen
class OperationCounts:
    """Work of one execution of a compute set. `unit` is "AMP" for products on the matrix engines, else "vector".

    `element_type` is the type of a product's operands, or else of the result. `flop` counts two for a multiply-add and
    one for each other operation on an element. `bytes` are those of the arrays that it accesses. `convolves` is True
    for a convolution. `columns` is the smaller of a product's rows and columns, 0 for other work. `batches` is the
    number of products of one compute set. `unmeasured` names work that no published figure measures.
    """

    layer: str = ""
    unit: str = "vector"
    element_type: str = ""
    flop: int = 0
    bytes: int = 0
    convolves: bool = False
    columns: int = 0
    batches: int = 1
    unmeasured: str = ""


def operation_of(compute_set: ComputeSet) -> OperationCounts:
    """The work of one execution of a compute set."""
    work_estimate = compute_set.work_estimate
    on_amp = work_estimate.multiply_adds > 0 and kind_of(work_estimate.element_type) != "integer"
    spans = compute_set.writes or compute_set.reads
    element_type = work_estimate.element_type if on_amp else spans[0].buffer.shape.element_type if spans else ""
    if work_estimate.multiply_adds:
        flop = 2 * work_estimate.multiply_adds
    else:
        flop = _operations(compute_set)
    touched = {span.buffer: span.buffer.shape.bytes for span in (*compute_set.reads, *compute_set.writes)}
    unit = "AMP" if on_amp else "vector"
    convolves, columns, batches = isinstance(compute_set.work, Convolution), 0, 1
    if on_amp and not convolves:
        size = work_estimate.product or getattr(compute_set.work, "size", None)
        batches, columns = (1, 0) if size is None else (size[0], min(size[1], size[2]))
    counted = flop, sum(touched.values()), convolves, columns, batches, _unmeasured(compute_set, element_type)
    return OperationCounts(layer_of(compute_set.op_name), unit, element_type, *counted)


def _unmeasured(compute_set: ComputeSet, element_type: str) -> str:
    """The kind of a compute set's work, where no program with a published figure has much of it."""
    work = compute_set.work
    if isinstance(work, FusedLoop):
        return "operations on integers" if element_type.startswith(("s", "u")) else ""
    if not isinstance(work, Convolution):
        return next((kind for opcode, kind in UNMEASURED.items() if opcode in compute_set.work_estimate.elements), "")
    if any(size.groups > 1 and size.outputs == 1 for size in work.parts):
        return "depthwise convolutions"
    dimensions = max(sum(max(pair) > 1 for pair in zip(size.field, size.taps, strict=True)) for size in work.parts)
    return {1: "convolutions of one dimension", 3: "convolutions of three dimensions"}.get(dimensions, "")


def _operations(compute_set: ComputeSet) -> int:
    """The program's own operations on elements, whatever vertices a chip has for them."""
    if isinstance(compute_set.work, FusedLoop):
        return sum(count for opcode, count in compute_set.work_estimate.elements.items() if opcode not in MOVES)
    work = work_of(compute_set)
    return work.points * sum(opcode not in MOVES for opcode, _ in work.operations)
