"""The interface to tf_keras: hooks into its models, its steps and its predictions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tf_keras.src import backend
from tf_keras.src.callbacks import BackupAndRestore, Callback, CallbackList, ModelCheckpoint, ProgbarLogger, TensorBoard
from tf_keras.src.engine import data_adapter, training
from tf_keras.src.engine.functional import Functional
from tf_keras.src.engine.sequential import Sequential
from tf_keras.src.engine.training import Model
from tf_keras.src.layers.normalization.batch_normalization import BatchNormalizationBase
from tf_keras.src.layers.preprocessing import preprocessing_utils
from tf_keras.src.layers.rnn.base_rnn import RNN
from tf_keras.src.losses import Loss
from tf_keras.src.mixed_precision import loss_scale_optimizer
from tf_keras.src.optimizers import nadam, optimizer_v1, sgd
from tf_keras.src.optimizers import optimizer as optimizers
from tf_keras.src.optimizers.legacy import adagrad, adam, gradient_descent, optimizer_v2, rmsprop
from tf_keras.src.utils import traceback_utils
from tf_keras.src.utils.generic_utils import Progbar
from tf_keras.src.utils.losses_utils import ReductionV2

from ipu._internal.compiler.batch_norm import group_moments, group_of_layer
from ipu._internal.compiler.variables import IPUVariable, tracing
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
from keras_ext.epochs.batch_types import BatchType, batch_type
from keras_ext.extensions import FunctionalExtension, ModelExtension, SequentialExtension
from keras_ext.framework import Framework, Mode
from keras_ext.frameworks import category_counts, random_draws, tf_keras_backup, tf_keras_graphs, tf_keras_labels
from keras_ext.frameworks.common import dense, plain_outside, serves, with_plain_steps
from keras_ext.frameworks.functions import make_functions
from keras_ext.frameworks.tf_keras_data import RowsAdapter, data_handler, single_batch
from keras_ext.frameworks.tf_keras_saving import keep_options
from keras_ext.frameworks.whole_updates import apply_pairs, wrap_once, wrap_overrides
from keras_ext.names import registration
from keras_ext.origins import users_own
from keras_ext.predictions import as_result, join_by_shape
from keras_ext.saving import ConfigKeeper
from keras_ext.training import PredictFunction
from keras_ext.types import Batch, KerasOptimizer, Nest, Tensor
from keras_ext.wrapping import Original, leave_out_of_tracebacks, wrap

OPTIMIZERS = {
    optimizers.Optimizer: ("update_step",),
    optimizer_v2.OptimizerV2: ("_resource_apply_dense",),
    optimizer_v1.TFOptimizer: (),
    loss_scale_optimizer.LossScaleOptimizer: (),
    loss_scale_optimizer.LossScaleOptimizerV3: (),
}
"""Classes whose methods apply gradients, and the methods that custom optimizers override to update one variable."""


UPDATES = ("_resource_apply_dense", "_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices")
UPDATES_AS_TENSORS = [
    [getattr(kind, name) for name in UPDATES]
    for kind in (adagrad.Adagrad, adam.Adam, gradient_descent.SGD, rmsprop.RMSprop)
]
"""Methods of legacy optimizers that, without momentum, update alike with IndexedSlices and with equal tensors."""


class TFKeras(Framework):
    """The framework-independent parts' interface to a tf_keras model."""

    def prepare(self, model: Model, mode: Mode, batch: Batch, batch_type: BatchType = None) -> None:
        """Does nothing: tf_keras builds the variables of a step when the step is traced."""

    def step(self, model: Model, mode: Mode, data: Batch, method: Callable[..., Any] | None = None) -> Any:
        """Traces one step of the model, in its strategy, and counts it, as Keras does."""
        strategy = model.distribute_strategy
        _adopt_optimizers(self.optimizer(model), strategy)
        for base in (optimizers._BaseOptimizer, optimizer_v2.OptimizerV2):
            wrap_overrides(base, "apply_gradients", functools.partial(apply_pairs, _variables, ()))
        step = getattr(model, f"{mode}_step")
        counter = getattr(model, f"_{mode}_counter")

        def counted_step(data: Batch) -> Any:
            # AutoGraph is off where steps are traced, but Keras has it convert the `call` of its users' layers.
            with ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED):
                outputs = step(data)
            counter.assign_add(1)
            return outputs

        with strategy.scope():
            return strategy.run(counted_step, args=(data,))

    def steps_per_execution(self, model: Model) -> int:
        """The value given to `compile`, less at the end of an epoch."""
        steps = model._steps_per_execution
        return 1 if steps is None else int(steps.numpy())

    def metric_variables(self, model: Model) -> list[Any]:
        """TensorFlow's variables of the model's metrics, which mixed precision wraps."""
        return [getattr(each, "_variable", each) for metric in model.metrics for each in metric.variables]


class PredictIteratorFunction(PredictFunction):
    """The predict function of tf_keras' models, which pass their iterator to it."""

    def __call__(self, iterator: Iterable[Batch]) -> Any:
        """The outputs of up to `steps_per_execution` batches; StopIteration when there is none left."""
        batches = list(islice(iterator, self.framework.steps_per_execution(self.model)))
        if not batches:
            raise StopIteration
        program, columns = self._run(batches, batch_type(iterator))
        return program.pack([as_result(column) for column in columns])


def install() -> None:
    """Wraps tf_keras' models at class level, once; models outside an IPUStrategy behave as before."""
    if RowsAdapter in data_adapter.ALL_ADAPTER_CLS:
        return
    data_adapter.ALL_ADAPTER_CLS.append(RowsAdapter)
    make_functions(Model, TFKeras(), PredictIteratorFunction, "_distribution_strategy")
    wrap(Model, "compile", _compile)
    wrap(Model, "_validate_compile", _validate_compile)
    Model.distribute_strategy = property(_distribute_strategy, doc=Model.distribute_strategy.__doc__)
    wrap(data_adapter, "get_data_handler", _get_data_handler)
    wrap(data_adapter, "single_batch_iterator", _single_batch_iterator)
    for optimizer, takes in OPTIMIZERS.items():
        wrap_once(optimizer, "apply_gradients", functools.partial(apply_pairs, _variables, takes))
    kinds = {Sequential: SequentialExtension, Functional: FunctionalExtension, Model: ModelExtension}
    keep_options(ConfigKeeper(extension.install(Model, kinds, "_distribution_strategy"), list(kinds.values())))
    traceback_utils._EXCLUDED_PATHS = leave_out_of_tracebacks(traceback_utils._EXCLUDED_PATHS)
    tf_keras_graphs.install()
    tf_keras_labels.install()
    random_draws.install()
    step_callbacks.install(CallbackList)
    progress_bars.install(Progbar)
    tensorboard.install(TensorBoard)
    processes.install(ModelCheckpoint, CallbackList)
    runs.install(Model, lambda model: serves(getattr(model, "_distribution_strategy", None)))
    accelerated_methods.install(Model, ACCELERATED)
    attempts.install(CallbackList)
    registration.register("tf_keras")
    tf_keras_backup.install()
    for method in ("_no_sync_calculate_mean_and_var", "_sync_calculate_mean_and_var"):
        wrap(BatchNormalizationBase, method, _moments)
    wrap(RNN, "__init__", _make_stateful)
    wrap(preprocessing_utils, "dense_bincount", category_counts.dense_bincount)
    wrap(backend, "ctc_label_dense_to_sparse", _sparse_labels)
    wrap(optimizers._BaseOptimizer, "_deduplicate_sparse_grad", _without_equal_rows)
    wrap(optimizer_v2.OptimizerV2, "_distributed_apply", _update_pairs)
    wrap(sgd.SGD, "update_step", _update_without_idle_velocities)
    wrap(nadam.Nadam, "build", _build_as_traced_twice)
    wrap(loss_scale_optimizer, "strategy_supports_loss_scaling", _supports_loss_scaling)
    wrap(Loss, "_get_reduction", _reduction)
    wrap(training, "potentially_ragged_concat", join_by_shape)
    batch_hooks.install(Callback, CallbackList, _idle_hooks())


def _idle_hooks() -> batch_hooks.Idle:
    """The methods for batches of Keras' own callbacks, which do nothing if these act by epoch."""
    saved = batch_hooks.by_epoch(ModelCheckpoint, "_should_save_on_batch")
    backed_up, shown = batch_hooks.by_epoch(BackupAndRestore, "_backup"), batch_hooks.by_epoch(TensorBoard)
    bars = (f"on_{mode}_batch_end" for mode in ("train", "test", "predict"))
    return {
        ModelCheckpoint.on_train_batch_end: saved,
        BackupAndRestore.on_train_batch_begin: backed_up,
        BackupAndRestore.on_train_batch_end: backed_up,
        TensorBoard.on_train_batch_begin: shown,
        TensorBoard.on_train_batch_end: shown,
        **{getattr(ProgbarLogger, bar): batch_hooks.is_of(ProgbarLogger, "_batch_update_progbar") for bar in bars},
    }


def _shows_means(model: Model, mode: str) -> bool:
    """Whether a step may have logs that are not metrics, whose means over the steps Keras' progress bar shows."""
    return any(users_own(type(model), name) for name in (f"{mode}_step", "compute_metrics", "get_metrics_result"))


def _remake_validation(model: Model, again: Callable[[Any], Any]) -> None:
    arguments, named = getattr(getattr(model, "_eval_data_handler", None), "_ipu_arguments", ((), None))
    if named is not None:
        given = {**named, "x": again(named["x"]), "steps_per_execution": model._steps_per_execution}
        model._eval_data_handler = data_adapter.get_data_handler(*arguments, **given)


def _without_equal_rows(original: Original, optimizer: Any, gradients: Sequence[Any]) -> Any:
    """Calls the method that adds rows of equal ids, with tensors unless a user's method updates a variable."""
    own = users_own(type(optimizer), "update_step")
    return original(optimizer, gradients if own else [dense(each) for each in gradients])


def _sparse_labels(original: Original, labels: Tensor, label_lengths: Tensor) -> tf.SparseTensor:
    """Labels [B, L] before their rows' lengths, by one tf.where: Keras joins arrays of a size known at run time."""
    if not tracing():
        return original(labels, label_lengths)
    indices = tf.where(tf.sequence_mask(label_lengths, tf.shape(labels)[1]))
    return tf.SparseTensor(indices, tf.gather_nd(labels, indices), tf.shape(labels, tf.int64))


def _update_pairs(original: Original, optimizer: Any, distribution: Any, pairs: Iterable[Any], **named: Any) -> Any:
    """Calls a legacy optimizer's method with clipped gradients, as tensors where these update like IndexedSlices.

    Other optimizers leave the rows that no batch names, and their momentum, unchanged.
    """
    updates = [getattr(type(optimizer), name) for name in UPDATES]
    as_tensors = updates in UPDATES_AS_TENSORS and not getattr(optimizer, "_momentum", False)
    given = [(dense(gradient) if as_tensors else gradient, variable) for gradient, variable in pairs]
    return original(optimizer, distribution, given, **named)


def _set_steps(model: Model, steps: int) -> None:
    if model._steps_per_execution is not None:  # None before `compile`
        model._steps_per_execution.assign(steps)


ACCELERATED = accelerated_methods.AcceleratedKeras(
    *("_distribution_strategy", _set_steps),
    steps_need_length=True,
    shows_means=_shows_means,
    iterator=data_adapter.GeneratorDataAdapter.can_handle,
    as_source=lambda reader: reader,
    remake_validation=_remake_validation,
)


def _compile(original: Original, model: Model, *arguments: object, **named: object) -> None:
    ours = serves(getattr(model, "_distribution_strategy", None))
    original(model, *arguments, **(with_plain_steps(named) if ours else named))


def _validate_compile(original: Original, model: Model, optimizer: Nest, metrics: Nest, **named: object) -> None:
    """Checks as Keras does, but lets models of no strategy use metrics and optimizers with variables on the device."""

    def of_others(part: Any) -> bool:
        listed = getattr(part, "variables", ())
        variables = (*(listed() if callable(listed) else listed), *getattr(part, "_weights", ()))
        return not any(isinstance(variable, IPUVariable) for variable in variables)

    kept = [list(filter(of_others, tf.nest.flatten(each))) for each in (optimizer, metrics)]
    original(model, *kept, **named)


def _distribute_strategy(model: Model) -> tf.distribute.Strategy:
    return model._distribution_strategy or plain_outside(tf.distribute.get_strategy())


def _adopt_optimizers(structure: Nest, strategy: tf.distribute.Strategy) -> None:
    """Gives optimizers the strategy: they would update their averages with the one that they were created under."""
    for outer in tf.nest.flatten(structure):
        optimizer = getattr(outer, "inner_optimizer", outer)
        if isinstance(optimizer, optimizers.Optimizer):
            optimizer._distribution_strategy = strategy


def _get_data_handler(original: Original, *arguments: Nest, **named: Any) -> data_adapter.DataHandler:
    if not serves(getattr(named["model"], "_distribution_strategy", None)):
        return original(*arguments, **named)
    handler = data_handler(*arguments, **named)
    handler._ipu_arguments = arguments, named
    return handler


def _single_batch_iterator(
    original: Original, strategy: tf.distribute.Strategy, *arguments: Nest, **named: Any
) -> Iterator[Any]:
    return single_batch(*arguments, **named) if serves(strategy) else original(strategy, *arguments, **named)


def _variables(optimizer: KerasOptimizer) -> list[Any]:
    """An optimizer's variables, of any generation; those that Keras does not list are attributes (Nadam has one)."""
    inner = getattr(optimizer, "optimizer", optimizer)  # TensorFlow 1's
    listed = getattr(inner, "variables", ())
    unlisted = [value for value in vars(inner).values() if isinstance(value, tf.Variable)]
    count = getattr(optimizer, "iterations", None)
    return [*(listed() if callable(listed) else listed), *unlisted, *([] if count is None else [count])]


def _update_without_idle_velocities(original: Original, optimizer: sgd.SGD, gradient: Tensor, variable: Tensor) -> None:
    """Keeps velocities zero where there is no momentum.

    Keras stores each step as a velocity, though the next step multiplies it by zero. That store alone would touch all
    of an embedding's table.
    """
    if tracing() and isinstance(optimizer.momentum, int | float) and optimizer.momentum == 0:
        variable.assign_add(-gradient * tf.cast(optimizer.learning_rate, variable.dtype))
    else:
        original(optimizer, gradient, variable)


def _build_as_traced_twice(original: Original, optimizer: nadam.Nadam, variables: Sequence[Any]) -> None:
    """Builds Nadam, which counts the traced updates of variables in Python, and adds a trace to its count.

    TensorFlow traces a step that builds the optimizer a second time and runs only that trace. The engine traces it
    once, so the count includes a trace that is not made. A single weight would become NaN: its count stays.
    """
    was_built = getattr(optimizer, "_built", False)
    original(optimizer, variables)
    if tracing() and not was_built and len(variables) > 1:
        optimizer._u_product_counter += len(variables)


def _make_stateful(original: Original, layer: RNN, *arguments: object, **named: object) -> None:
    """Constructs a layer, also a stateful one, which Keras' constructor refuses under any strategy."""
    if not serves(tf.distribute.get_strategy()):
        return original(layer, *arguments, **named)
    given = inspect.signature(original).bind(layer, *arguments, **named)
    stateful = given.arguments.pop("stateful", False)
    original(*given.args, **given.kwargs)
    layer.stateful = stateful


def _moments(
    original: Original,
    layer: BatchNormalizationBase,
    inputs: Nest,
    reduction_axes: Sequence[int],
    keep_dims: bool,
    mask: Nest = None,
) -> Any:
    """Mean and variance over the batches of a group of replicas, where it has several."""
    if (group := group_of_layer(layer)) == 1:
        return original(layer, inputs, reduction_axes, keep_dims, mask=mask)
    weights = None if mask is None else tf.expand_dims(mask, -1)
    return group_moments(group, inputs, reduction_axes, weights, keep_dims)


def _supports_loss_scaling(original: Original) -> bool:
    """Whether the strategy in scope supports loss scaling: Keras decides by its class, an IPUStrategy by attribute."""
    return getattr(tf.distribute.get_strategy(), "supports_loss_scaling", False) or original()


def _reduction(original: Original, loss: Loss) -> str:
    """Allows means outside of `compile`: Keras refuses them, as several replicas would divide by too few elements."""
    averages = loss.reduction in (ReductionV2.AUTO, ReductionV2.SUM_OVER_BATCH_SIZE)
    if averages and serves(tf.distribute.get_strategy()):
        return ReductionV2.SUM_OVER_BATCH_SIZE
    return original(loss)
