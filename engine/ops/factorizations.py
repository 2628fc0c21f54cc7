"""Definitions of the factorizations of engine.ir.factorizations, by NumPy in float64."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ir.device_operations import config_of, target_of
from engine.ir.factorizations import EIGH, FACTORIZATIONS, LU, QR, SVD, factorization_shapes
from engine.ops.registry import custom_call


@custom_call(*FACTORIZATIONS)
def _factorized(instruction: Instruction, operands: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Factors of a matrix, or NaN for all of them if an element is not finite."""
    shapes, target, config = factorization_shapes(instruction), target_of(instruction), config_of(instruction)
    results = tuple(np.empty(each.dimensions, each.dtype) for each in shapes)
    for position in np.ndindex(*operands[0].shape[:-2]):
        given = [each[position].astype(np.float64) for each in operands]
        if target == LU:
            values = _lu(given[0])
        elif not all(np.isfinite(each).all() for each in given):
            values = tuple(np.full((), np.nan) for _ in shapes)
        elif target == SVD:
            u, s, v = np.linalg.svd(given[0], full_matrices=False)
            values = (s, u, v.T)
        elif target == EIGH:
            values = tuple(np.linalg.eigh(given[0]))
        elif target == QR:
            values = tuple(np.linalg.qr(given[0], "complete" if config["full"] else "reduced"))
        else:
            values = (np.linalg.solve(*given),)
        for result, value in zip(results, values, strict=False):
            result[position] = value
    return results


def _lu(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """LU factors with the first of the largest elements as pivots."""
    a, order, sign = a.copy(), np.arange(len(a)), 1.0
    for k in range(len(a)):
        found = k + int(np.argmax(np.abs(a[k:, k])))
        if found != k:
            a[[k, found]], order[[k, found]], sign = a[[found, k]], order[[found, k]], -sign
        if a[k, k] != 0:
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, order, np.array(sign)
