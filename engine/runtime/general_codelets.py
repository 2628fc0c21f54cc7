"""The codelets that do not depend on a model, so that they can be compiled ahead of the first."""

from __future__ import annotations

from engine.codelets import (
    chain,
    contract_bf16x3,
    contract_f32,
    dynamic_slice,
    exceptions,
    gather,
    host_call,
    host_table,
    per_iteration,
    queues,
    random,
    row_sums,
    rows,
    scatter,
    sort,
    thread_pool,
    touched_rows,
    transpose,
    waiting,
    winograd,
    winograd_gradient,
)
from engine.codelets.build import Codelet
from engine.machine_code.processor import may_use_matrix_registers
from engine.runtime import executor

MODULES = (
    *(executor, thread_pool, waiting, rows, queues, per_iteration, host_call, exceptions),
    *(contract_f32, chain, transpose, gather, scatter, row_sums, touched_rows),
    *(dynamic_slice, random, sort, host_table),
    *(winograd, winograd_gradient),
)


def general_codelets() -> list[Codelet]:
    """The codelets by name in these modules, and those for matrix registers where there are any."""
    modules = (*MODULES, contract_bf16x3) if may_use_matrix_registers() else MODULES
    found = (each for module in modules for each in vars(module).values() if isinstance(each, Codelet))
    return list(dict.fromkeys(found))
