"""Parameter blocks of contractions, and the number of their units."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.codelets.language.record import ParameterBlock, block
from engine.codelets.products.contract_fields import Field, contract_record
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import Offsets

NO_BATCHES = np.zeros(1, np.int64)


def encode_contract(
    *,
    operand_type: str = "f32",
    rows_per_unit: int = 96,
    columns_per_unit: int = 256,
    k_per_unit: int | None = None,
    batch_a: np.ndarray = NO_BATCHES,
    batch_b: np.ndarray = NO_BATCHES,
    batch_c: np.ndarray = NO_BATCHES,
    **arguments: Any,
) -> ParameterBlock:
    """The block of `contract_record`, for a contraction of tables and addresses."""
    named = arguments | {"batch_a": batch_a, "batch_b": batch_b, "batch_c": batch_c}
    given = {name: Offsets(each) if isinstance(each, np.ndarray) else each for name, each in named.items()}
    grid = Grid(rows_per_unit, columns_per_unit, k_per_unit or max(len(given["k_a"]), 1))
    return block(contract_record(Contraction(**given, grid=grid, operand_type=operand_type, result_type="f32")))


def contract_units(parameters: ParameterBlock) -> int:
    """The number of units of a parameter block; 0 if C has no elements."""
    return int(np.prod(parameters.words[[Field.ROW_BLOCKS, Field.COLUMN_BLOCKS, Field.K_SPLITS, Field.BATCHES]]))
