"""batch-norm-training, batch-norm-inference and batch-norm-grad, over all dimensions but `feature_index`."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ops.floats import computing
from engine.ops.registry import Value, definition


def _layout(instruction: Instruction, operand: np.ndarray) -> tuple[list[int], tuple[int, ...]]:
    """The shape that aligns a feature vector with the operand, and the reduced dimensions."""
    feature = instruction["feature_index"] % operand.ndim
    aligned = [-1 if d == feature else 1 for d in range(operand.ndim)]
    return aligned, tuple(d for d in range(operand.ndim) if d != feature)


@definition("batch-norm-training")
def _batch_norm_training(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Returns (normalised operand, mean, biased variance)."""
    dtypes = [o.dtype for o in operands]
    operand, scale, offset = (computing(o) for o in operands)
    aligned, reduced = _layout(instruction, operand)
    mean = operand.mean(reduced)
    variance = np.square(operand - mean.reshape(aligned)).mean(reduced)
    result = _normalised(operand, scale, offset, mean, variance, instruction["epsilon"], aligned)
    return result.astype(dtypes[0]), mean.astype(dtypes[1]), variance.astype(dtypes[1])


@definition("batch-norm-inference")
def _batch_norm_inference(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    operand, scale, offset, mean, variance = (computing(o) for o in operands)
    aligned, _ = _layout(instruction, operand)
    result = _normalised(operand, scale, offset, mean, variance, instruction["epsilon"], aligned)
    return result.astype(operands[0].dtype)


def _normalised(
    operand: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    epsilon: float,
    aligned: list[int],
) -> np.ndarray:
    factor = scale / np.sqrt(variance + operand.dtype.type(epsilon))
    return (operand - mean.reshape(aligned)) * factor.reshape(aligned) + offset.reshape(aligned)


@definition("batch-norm-grad")
def _batch_norm_grad(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Gradients of operand, scale and offset, from (operand, scale, mean, variance, gradient)."""
    dtypes = [o.dtype for o in operands]
    operand, scale, mean, variance, gradient = (computing(o) for o in operands)
    aligned, reduced = _layout(instruction, operand)
    count = operand.size // max(1, mean.size)
    deviation = 1 / np.sqrt(variance + operand.dtype.type(instruction["epsilon"]))
    centred = operand - mean.reshape(aligned)
    of_offset = gradient.sum(reduced)
    of_scale = (gradient * centred).sum(reduced) * deviation
    inner = count * gradient - of_offset.reshape(aligned)
    inner = inner - centred * (of_scale * deviation).reshape(aligned)
    of_operand = (scale * deviation / count).reshape(aligned) * inner
    return of_operand.astype(dtypes[0]), of_scale.astype(dtypes[1]), of_offset.astype(dtypes[1])
