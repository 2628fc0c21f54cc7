"""Arguments of model and input functions, predictions by their keys, and examples of batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from engine.errors import ConfigurationError


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def examples(batch: Any) -> Iterator[Any]:
    """The examples of a batch: an array, or a dictionary of them. Raises ConfigurationError for different sizes."""
    if not isinstance(batch, dict):
        yield from batch
        return
    sizes = {name: len(value) if np.ndim(value) else None for name, value in batch.items()}
    if len(set(sizes.values())) > 1 or None in sizes.values():
        raise ConfigurationError(
            f"Expected predictions of one batch size. Received: {sizes}. Pass yield_single_examples=False."
        )
    for example in zip(*batch.values(), strict=True):
        yield dict(zip(batch, example, strict=True))


def chosen(predictions: Any, keys: Collection[str]) -> dict[str, Any]:
    """The predictions of these keys. Raises ConfigurationError for other keys, and predictions without keys."""
    if not isinstance(predictions, Mapping):
        raise ConfigurationError(
            f"Expected no predict_keys for predictions that are no dictionary. Received: {list(keys)}."
        )
    if unknown := [key for key in keys if key not in predictions]:
        raise ConfigurationError(f"Expected predict_keys among {sorted(predictions)}. Received: {unknown}.")
    return {key: value for key, value in predictions.items() if key in keys}
