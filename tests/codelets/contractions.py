"""Parameter blocks of contractions, and the number of their units."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.codelets.language.record import block
from engine.codelets.products.contract_fields import Field, contract_record


def encode_contract(**arguments: Any) -> np.ndarray:
    """The words of `contract_record`, int64 [Field.WORDS], for a caller who keeps the tables."""
    return block(contract_record(**arguments)).words


def contract_units(parameters: np.ndarray) -> int:
    """The number of units of a parameter block; 0 if C has no elements."""
    return int(np.prod(parameters[[Field.ROW_BLOCKS, Field.COLUMN_BLOCKS, Field.K_SPLITS, Field.BATCHES]]))
