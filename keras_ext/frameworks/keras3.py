"""The interface to Keras 3: hooks into its trainer, its steps and its data."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import numpy as keras_numpy
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.callbacks.callback_list import CallbackList
from keras.src.callbacks.model_checkpoint import ModelCheckpoint
from keras.src.callbacks.tensorboard import TensorBoard
from keras.src.legacy.saving import legacy_h5_format
from keras.src.models import cloning
from keras.src.models.functional import Functional
from keras.src.optimizers import base_optimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.saving import object_registration, saving_lib
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.utils import traceback_utils
from keras.src.utils.progbar import Progbar

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from engine.partition.accumulation import Accumulation
from ipu._internal.function_code import wraps
from keras_ext import (
    accelerated_methods,
    attempts,
    batch_hooks,
    extension,
    processes,
    progress_bars,
    runs,
    step_callbacks,
    tensorboard,
)
from keras_ext.epochs.batch_types import BatchType
from keras_ext.epochs.limited import unlimited
from keras_ext.epochs.partial_batch import partial_batch
from keras_ext.epochs.passes import DataPasses
from keras_ext.epochs.read_ahead import ReadAhead
from keras_ext.extensions import FunctionalExtension, ModelExtension, SequentialExtension
from keras_ext.framework import Framework, Mode
from keras_ext.frameworks import (
    indexed_slices,
    keras3_accelerated,
    keras3_backup,
    keras3_graphs,
    keras3_labels,
    keras3_layers,
    keras3_logs,
    keras3_loss_weights,
    keras3_metrics,
    keras3_scopes,
    optimizer_updates,
    random_draws,
)
from keras_ext.frameworks.common import plain_outside, serves, with_plain_steps
from keras_ext.frameworks.functions import make_functions
from keras_ext.frameworks.keras3_batches import Standard, batches_of, rows_of
from keras_ext.frameworks.keras3_building import (
    adopt_optimizer,
    apply_built,
    build,
    build_before_scaling,
    build_where_traced,
    scale_loss_built,
    traced_step_of,
)
from keras_ext.frameworks.keras3_executions import executions
from keras_ext.frameworks.whole_updates import apply_lists, apply_pairs, apply_to_sums, wrap_once, wrap_overrides
from keras_ext.names import registration
from keras_ext.predictions import join_by_shape
from keras_ext.replication import ReplicatedBatches, replicas_of, steps_per_replica
from keras_ext.saving import ConfigKeeper
from keras_ext.training import PredictFunction
from keras_ext.types import Batch, Nest
from keras_ext.updates import check_batches, check_executions
from keras_ext.wrapping import Original, leave_out_of_tracebacks, wrap


class Keras3(Framework):
    """The framework-independent parts' interface to a Keras 3 model."""

    def prepare(self, model: keras.Model, mode: Mode, batch: Batch, batch_type: BatchType = None) -> None:
        """Builds layers, metrics and loss for specs of a batch."""
        adopt_optimizer(model)
        build(model, mode, batch, batch_type)

    def step_of(self, model: keras.Model, mode: Mode) -> Callable[..., Any] | None:
        """The step that the model has now; None for `predict`, whose step is looked up in each trace."""
        return None if mode == "predict" else getattr(model, f"{mode}_step")

    def step(self, model: keras.Model, mode: Mode, data: Batch, method: Callable[..., Any] | None = None) -> Any:
        """Traces one step of the model, in its strategy, as Keras does."""
        strategy = model.distribute_strategy
        wrap_overrides(BaseOptimizer, "apply", functools.partial(apply_lists, _optimizer_variables, ()))
        wrap_overrides(BaseOptimizer, "apply_gradients", functools.partial(apply_pairs, _optimizer_variables, ()))
        with strategy.scope(), keras3_scopes.own_scopes(), traced_step_of(model):
            return strategy.run(method or getattr(model, f"{mode}_step"), args=(data,))

    def steps_per_execution(self, model: keras.Model) -> int:
        """The value given to `compile`."""
        return model.steps_per_execution

    def metric_variables(self, model: keras.Model) -> list[Any]:
        """TensorFlow's variables of the model's metrics."""
        return [variable._value for variable in model.metrics_variables]


class IPUEpochIterator(EpochIterator):
    """Keras' bookkeeping of epochs and steps, for data that do not pass through a tf.data pipeline of Keras."""

    steps_per_epoch: int | None
    _num_batches: int | None

    def __init__(self, distribute_strategy: tf.distribute.Strategy | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.arguments = arguments
        self._data: Any = None
        self._standard = Standard()
        if isinstance(self.data_adapter, ArrayDataAdapter):
            self._data = rows_of(self.data_adapter)
        elif isinstance(self.data_adapter, GeneratorDataAdapter):
            self._standard = Standard(self.data_adapter._first_batches)
        self._passes: DataPasses | None = None
        self._replicas = replicas_of(distribute_strategy)
        self._ends_executions = runs.steps_are_chosen.value
        # Keras counts the batches of all replicas here, and the steps of each everywhere else.
        batches = self.steps_per_epoch
        self.steps_per_epoch = steps_per_replica(batches, self._replicas)
        self._count_steps()
        run = runs.opening()
        if run is not None and run.mode == "predict" and self._num_batches == 0:
            raise ValueError("Expected data with at least one sample. Received: none. Check how they were selected.")
        self._epochs = 1 if run is None else run.epochs
        accumulation = Accumulation() if run is None else run.accumulation()
        check_batches(self._partial_batch(batches), accumulation, self._replicas)
        check_executions(self._steps_of_a_pass(), self.steps_per_execution, accumulation)
        if run is not None and isinstance(self.data_adapter, TFDatasetAdapter):
            self._passes = run.passes = DataPasses(self._for_replicas(), goes_on=self.steps_per_epoch is not None)

    def _partial_batch(self, batches: int | None) -> tuple[int, int] | None:
        adapter = self.data_adapter
        if isinstance(adapter, TFDatasetAdapter):
            return partial_batch(adapter.get_tf_dataset(), batches)
        rows = adapter.partial_batch_size if isinstance(adapter, ArrayDataAdapter) else None
        return (rows, adapter.batch_size) if rows else None

    def _steps_of_a_pass(self) -> int | None:
        """The steps of a pass whose last execution may be short; None if epochs have another or unknown length."""
        steps = self._num_batches
        return None if steps is None or 0 < (self.steps_per_epoch or 0) < steps else steps

    def reset(self) -> None:
        """Prepares for the next run."""
        super().reset()
        self._count_steps()

    def _count_steps(self) -> None:
        if self.steps_per_epoch is None:
            self._num_batches = steps_per_replica(self._num_batches, self._replicas)
        elif self._num_batches is not None:
            self._num_batches //= self._replicas

    def _get_iterator(self) -> Iterable[Any]:
        return self._for_replicas() if self._passes is None else self._passes

    def _for_replicas(self) -> Iterable[Any]:
        batches = self._batches()
        return batches if self._replicas == 1 else ReplicatedBatches(batches, self._replicas)

    def _batches(self) -> Iterable[Any]:
        if self._data is None:
            steps = self.steps_per_execution
            if self._ends_executions:
                steps = min(steps, self.steps_per_epoch or steps)
            needed = self._needed_batches()
            self._data = batches_of(self.data_adapter, self._standard, steps * self._replicas, needed)
        return self._data

    def _needed_batches(self) -> int | None:
        """The batches that a pass over the data gives at most; None where the data end it."""
        if self.steps_per_epoch is None:
            return None
        steps = self.steps_per_epoch
        if not self._ends_executions:
            steps = -(-steps // self.steps_per_execution) * self.steps_per_execution
        return steps * self._epochs * self._replicas

    def _enumerate_iterator(self) -> Iterator[tuple[int, int, Any]]:
        known = (self.steps_per_epoch or self._num_batches or -1) > 0
        ends = self._ends_executions and known
        for step, last, batches in executions(self, self._replicas) if ends else super()._enumerate_iterator():
            if attempts.attempt.value is not None and self._replicas == 1:
                attempts.attempt.value.note_pass(unlimited(batches), opened=1)
            yield step, last, batches

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        """Ends an epoch like Keras; an error or interruption also ends the reading of data for later steps."""
        with super().catch_stop_iteration():
            try:
                yield
            except BaseException as error:
                if isinstance(self._data, ReadAhead) and not isinstance(error, StopIteration):
                    self._data.close()
                raise

    def __next__(self) -> Any:
        return next(self._epoch_iterator)


def install() -> None:
    """Wraps Keras' trainer at class level, once; models outside an IPUStrategy behave as before.

    Raises ConfigurationError for backends other than TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise ConfigurationError(
            f"Expected Keras on the TensorFlow backend. Received: {keras.backend.backend()!r}. "
            "Set KERAS_BACKEND=tensorflow before Keras is imported."
        )
    if getattr(keras_trainer, "_serves_ipu", False):
        return
    keras_trainer._serves_ipu = True
    trainer = keras_trainer.TensorFlowTrainer
    make_functions(trainer, Keras3(), PredictFunction, "_distribute_strategy")
    wrap(trainer, "predict_on_batch", _predict_on_batch)
    wrap(keras_trainer, "potentially_ragged_concat", join_by_shape)
    for method in ("train_on_batch", "test_on_batch"):
        wrap(trainer, method, _with_array_of_weights)
    wrap(trainer, "_maybe_symbolic_build", build_where_traced)
    wrap(base_trainer.Trainer, "compile", _compile_in_scope)
    trainer.distribute_strategy = property(_distribute_strategy)
    keras_trainer.TFEpochIterator = _choosing_iterator(keras_trainer.TFEpochIterator)
    for kind in (BaseOptimizer, keras.optimizers.LossScaleOptimizer):
        wrap(kind, "apply", apply_to_sums)
    wrap(BaseOptimizer, "apply", apply_built)
    wrap(keras.optimizers.LossScaleOptimizer, "build", build_before_scaling)
    wrap(keras.optimizers.LossScaleOptimizer, "scale_loss", scale_loss_built)
    wrap_once(BaseOptimizer, "apply", functools.partial(apply_lists, _optimizer_variables, ("update_step",)))
    wrap(keras_numpy, "divide", indexed_slices.divide)
    wrap(TFOptimizer, "_backend_update_step", indexed_slices.update_as_chosen)
    wrap(base_optimizer, "global_norm", indexed_slices.norm_of_values)
    wrap(keras.optimizers.LossScaleOptimizer, "check_finite", indexed_slices.check_values)
    wrap(keras.optimizers.Adadelta, "update_step", optimizer_updates.adadelta_step)
    wrap(keras.optimizers.Adam, "update_step", optimizer_updates.adam_step)
    wrap(keras.optimizers.RMSprop, "update_step", optimizer_updates.rmsprop_step)
    wrap(keras.optimizers.SGD, "update_step", optimizer_updates.sgd_step)
    wrap(keras.optimizers.Adagrad, "update_step", optimizer_updates.adagrad_step)
    wrap(keras.optimizers.Nadam, "update_step", optimizer_updates.nadam_step)
    wrap(keras.optimizers.Lion, "update_step", optimizer_updates.lion_step)
    kinds = {keras.Sequential: SequentialExtension, Functional: FunctionalExtension, keras.Model: ModelExtension}
    keeper = ConfigKeeper(extension.install(keras.Model, kinds, "_distribute_strategy"), list(kinds.values()))
    keeper.wrap(keras.Sequential, Functional, keras.Model, cloning)
    keeper.write_whole((saving_lib, "save_model"), (saving_lib, "save_weights_only"))
    keeper.write_whole((legacy_h5_format, "save_model_to_hdf5"))
    # At the end of a batch, Keras runs callbacks that allow it in several threads.
    step_callbacks.install(CallbackList, direct="_")
    progress_bars.install(Progbar)
    tensorboard.install(TensorBoard)
    processes.install(ModelCheckpoint, CallbackList)
    wrap(saving_lib, "get_attr_skipset", processes.without_others)  # it creates variables in processes that write files
    runs.install(trainer, lambda model: serves(getattr(model, "_distribute_strategy", None)))
    accelerated_methods.install(trainer, keras3_accelerated.ACCELERATED)
    attempts.install(CallbackList)
    attempts.install_data(PyDatasetAdapter)
    registration.register_on_demand(object_registration, "keras")
    keras3_backup.install()
    traceback_utils._EXCLUDED_PATHS = leave_out_of_tracebacks(traceback_utils._EXCLUDED_PATHS)
    keras3_graphs.install()
    keras3_labels.install()
    random_draws.install()
    random_draws.install_keras3()
    keras3_layers.install()
    keras3_logs.install()
    keras3_loss_weights.install()
    keras3_metrics.install()
    keras3_scopes.install()
    batch_hooks.install(keras.callbacks.Callback, CallbackList, keras3_accelerated.idle_hooks())


def _predict_on_batch(original: Original, model: keras.Model, x: Nest) -> Any:
    """Returns arrays without Keras' conversion to tensors and back, which costs more than the model for one batch."""
    if serves(model._distribute_strategy):
        model.make_predict_function()
        if isinstance(model.predict_function, PredictFunction):
            return model.predict_function.arrays([(x,)])
    return original(model, x)


def _with_array_of_weights(
    original: Original, model: keras.Model, x: Nest, y: Nest = None, sample_weight: Nest = None, **named: Any
) -> Any:
    """Makes an array of a list of numbers: Keras' losses make one tensor of it, not a structure of weights."""
    are_numbers = isinstance(sample_weight, list) and all(isinstance(each, int | float) for each in sample_weight)
    if serves(model._distribute_strategy) and are_numbers:
        sample_weight = np.asarray(sample_weight, keras.config.floatx())
    return original(model, x, y, sample_weight, **named)


def _compile_in_scope(original: Original, model: keras.Model, *arguments: object, **named: object) -> None:
    """Compiles in the strategy's scope: metrics that `compile` creates belong on the device, wherever it is called."""
    if not serves(getattr(model, "_distribute_strategy", None)):
        return original(model, *arguments, **named)
    named = with_plain_steps(named)
    if (steps := named.get("steps_per_execution", True)) is not True:
        checked_integer("steps_per_execution", steps)
    with model._distribute_strategy.scope():
        original(model, *arguments, **named)
    adopt_optimizer(model)


def _optimizer_variables(optimizer: BaseOptimizer) -> list[Any]:
    return list(optimizer.variables)


def _distribute_strategy(model: keras.Model) -> tf.distribute.Strategy:
    """Keras' property, but a model created outside stays plain where it is used inside a scope."""
    if model._distribute_strategy is not None:
        return model._distribute_strategy
    return plain_outside(tf.distribute.get_strategy())


def _choosing_iterator(original: type) -> Original:
    @wraps(original, updated=())
    def epoch_iterator(distribute_strategy: tf.distribute.Strategy | None = None, **arguments: Any) -> Any:
        kind = IPUEpochIterator if serves(distribute_strategy) else original
        return kind(distribute_strategy=distribute_strategy, **arguments)

    return epoch_iterator
