"""PyTorch, eager, through the layers of Keras on PyTorch; loss, gradients and update are PyTorch's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks import models
from benchmarks.rivals.keras_fit import rows_of
from benchmarks.workloads import Workload

OPTIMIZERS = {"rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}


def prepare(workload: Workload, rival: str, options: list[str], inputs: Any, labels: np.ndarray) -> Callable[[], float]:
    """Builds the model and runs its first step; a round runs the workload's steps and returns seconds per step."""
    model = getattr(models, workload.model)(*workload.arguments)
    batch = workload.batch
    if workload.kind != "fit":
        return _predicting(workload, model, inputs)
    optimizer = OPTIMIZERS[workload.optimizer](model.parameters(), lr=1e-3, foreach=True)
    by_class = workload.loss == "categories"
    loss_of = torch.nn.CrossEntropyLoss() if by_class else torch.nn.BCEWithLogitsLoss()

    def step(rows: Any) -> None:
        x = [each[rows] for each in inputs] if isinstance(inputs, list) else inputs[rows]
        optimizer.zero_grad()
        predicted, expected = model(_tensors(x), training=True), torch.from_numpy(labels[rows])
        if by_class:
            predicted, expected = predicted.flatten(0, -2), expected.flatten()
        (loss_of(predicted, expected) + sum(model.losses)).backward()
        optimizer.step()

    step(np.arange(batch))

    def round_of() -> float:
        order = np.random.permutation(workload.samples)
        start = time.perf_counter()
        for number in range(workload.steps):
            step(order[number * batch : (number + 1) * batch])
        return (time.perf_counter() - start) / workload.steps

    return round_of


def _tensors(x: Any) -> Any:
    return [torch.from_numpy(each) for each in x] if isinstance(x, list) else torch.from_numpy(x)


def _predicting(workload: Workload, model: Any, inputs: Any) -> Callable[[], float]:
    def round_of() -> float:
        start = time.perf_counter()
        with torch.no_grad():
            for number in range(workload.steps):
                rows = rows_of(inputs, number * workload.batch, (number + 1) * workload.batch)
                model(_tensors(rows), training=False).numpy()
        return (time.perf_counter() - start) / workload.steps

    return round_of
