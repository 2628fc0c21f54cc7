"""`Estimator`: a model function trained, evaluated and exported in monitored sessions."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal import checkpoints
from ipu._internal.estimators import run_config
from ipu._internal.estimators.arguments import chosen, examples, takes
from ipu._internal.estimators.export import export_all
from ipu._internal.estimators.hooks import EndOfData, StopAfterRuns, StopAtLastStep, check_steps
from ipu._internal.estimators.keras_names import fresh_keras_names
from ipu._internal.estimators.model_folder import ModelFolder
from ipu._internal.estimators.specs import EstimatorSpec, ModeKeys, checked_hooks
from ipu._internal.estimators.training_session import check_one_process, train
from ipu._internal.estimators.warm_start import warm_start_settings
from ipu._internal.graphs.global_step import extend_global_step

extend_global_step()

v1 = tf.compat.v1
LOGGER = logging.getLogger("ipu.estimators")


class Estimator(ModelFolder):
    """Trains, evaluates and exports the model that `model_fn` builds: tf.estimator.Estimator, on the CPU.

    Args:
        model_fn: a function of `features` and, by name, of any of `labels`, `mode`, `params` and `config`, which
            returns an EstimatorSpec.
        model_dir: the folder of checkpoints and summaries; that of `config`, or a temporary one, if None.
        config: a RunConfig, or None for its defaults.
        params: a dictionary for `model_fn` and the input functions.
        warm_start_from: a checkpoint, its folder, a SavedModel, or WarmStartSettings.

    Raises:
        ValueError: `model_fn` does not take what is given, or two folders differ.
        TypeError: `config` or `params` is of another class.
    """

    _config_class: Any = run_config.RunConfig
    _iterations_per_loop = 1

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        config = self._config_class() if config is None else config
        if not isinstance(config, self._config_class):
            raise TypeError(f"Expected config to be a {self._config_class.__name__}. Received: {config!r}.")
        if params is not None and not isinstance(params, Mapping):
            raise TypeError(f"Expected params to be a dictionary. Received: {params!r}.")
        if not callable(model_fn):
            raise ConfigurationError(f"Expected model_fn to be a function. Received: {model_fn!r}.")
        if params is not None and not takes(model_fn, "params"):
            raise ConfigurationError(f"Expected model_fn to take params. Received: {inspect.signature(model_fn)}.")
        model_dir = None if model_dir is None else os.fspath(model_dir)
        if model_dir and config.model_dir and model_dir != config.model_dir:
            raise ConfigurationError(
                f"Expected model_dir to be that of config, {config.model_dir!r}. Received: {model_dir!r}."
            )
        self._model_dir = model_dir or config.model_dir or tempfile.mkdtemp()
        self._config: Any = copy.copy(config)
        self._config.model_dir = self._model_dir
        self._model_fn, self._params = model_fn, copy.deepcopy(dict(params or {}))
        self._warm_start = warm_start_settings(warm_start_from)

    @property
    def config(self) -> Any:
        """A copy of the RunConfig."""
        return copy.copy(self._config)

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model function of features, labels, mode and config, with the parameters of this estimator."""

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._call_model_fn(features, labels, mode)

        return model_fn

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Estimator:
        """Trains the model, from the latest checkpoint if there is one.

        Args:
            input_fn: a function, by name, of any of `mode`, `params` and `config`, which returns a data set of
                (features, labels).
            hooks: SessionRunHooks.
            steps: the number of steps to train; None means until the data set ends.
            max_steps: the global step to train to, instead of `steps`.
            saving_listeners: CheckpointSaverListeners.

        Returns:
            This estimator.

        Raises:
            ValueError: `steps` and `max_steps` are both given, one of them is not positive, or no multiple of the steps
                of one loop; or TF_CONFIG has a cluster, and the configuration no `train_distribute`.
        """
        check_one_process(self._config)
        hooks = list(checked_hooks(hooks))
        if self._config.writes_files:
            checkpoints.mend(self._model_dir)
        saved = self._saved_step() if max_steps is not None else 0
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ConfigurationError(f"Expected {name} to be 1 or more. Received: {value}.")
        if steps is not None and max_steps is not None:
            raise ConfigurationError("Expected one of steps and max_steps. Received: both. Leave one out.")
        if max_steps is not None and saved >= max_steps:
            LOGGER.info("The global step %d is not below max_steps %d: nothing is trained.", saved, max_steps)
            return self
        check_steps(steps if max_steps is None else max_steps - saved, self._iterations_per_loop)
        strategy = self._config.train_distribute
        with self._graph(), contextlib.nullcontext() if strategy is None else strategy.scope():
            v1.train.create_global_step()
            spec, own, end = (
                self._spec(input_fn, ModeKeys.TRAIN)
                if strategy is None
                else strategy.extended.call_for_each_replica(self._spec, (input_fn, ModeKeys.TRAIN))
            )
            if self._warm_start is not None and self.latest_checkpoint() is None:
                v1.train.warm_start(*self._warm_start)
            if steps is not None or max_steps is not None:
                hooks.append(StopAtLastStep(steps, max_steps, self._iterations_per_loop))
            hooks = [*spec.training_hooks, *hooks, *own]
            train(spec, hooks, saving_listeners, self._config, self._session_config(), self._iterations_per_loop)
        if strategy is not None:
            strategy.transport.barrier("end of training")  # the chief has written its last checkpoint
        if end is not None and end.reached:
            left = end.left_over()
            if left:
                LOGGER.warning("The last %d batches of the data set fill no loop, and were not trained on.", left)
        return self

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates the model with the data set of `input_fn`, and writes a summary to `eval_dir(name)`.

        Args:
            input_fn: as that of `train`.
            steps: the number of batches; None means until the data set ends.
            hooks: SessionRunHooks.
            checkpoint_path: a checkpoint; None means the latest one, or initial values where there is none.
            name: the name of the evaluation.

        Returns:
            The metrics by name, with `loss`, the mean over the batches, and `global_step`.

        Raises:
            ValueError: `steps` is not positive or no multiple of the steps of one loop, or the batches of the data set
                fill no whole number of loops.
        """
        hooks = list(checked_hooks(hooks))
        if steps is not None and steps <= 0:
            raise ConfigurationError(f"Expected steps to be 1 or more. Received: {steps}.")
        check_steps(steps, self._iterations_per_loop)
        with self._graph():
            global_step = v1.train.create_global_step()
            spec, own, end = self._spec(input_fn, ModeKeys.EVAL)
            metrics = dict(spec.eval_metric_ops)
            metrics.setdefault("loss", v1.metrics.mean(spec.loss))
            values = {key: value for key, (value, _) in metrics.items()}
            update = tf.group(*(update for _, update in metrics.values()))
            runs = StopAfterRuns(None if steps is None else steps // self._iterations_per_loop)
            final = v1.train.FinalOpsHook({**values, "global_step": global_step.read_value()})
            with self._session(spec, [*spec.evaluation_hooks, *hooks, runs, *own, final], checkpoint_path) as session:
                while not session.should_stop():
                    session.run(update)
            self._check_end(end)
            if not runs.done:
                raise ConfigurationError("Expected a data set with batches to evaluate with. Received: an empty one.")
            results = final.final_ops_values
            self._write_summary(self.eval_dir(name), results)
        return results

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields predictions for the features of a data set.

        Args:
            input_fn: as that of `train`; of a tuple, the first item is the features.
            predict_keys: a list of the keys of predictions to yield, or one key; None means all.
            hooks: SessionRunHooks.
            checkpoint_path: as that of `evaluate`.
            yield_single_examples: whether examples are yielded, and not batches.

        Yields:
            The predictions of an example, or of a batch: an array, or a dictionary of arrays.

        Raises:
            ValueError: one of `predict_keys` is no prediction, predictions are of different batch sizes, or the
                batches of the data set fill no whole number of loops.
        """
        with self._graph():
            v1.train.create_global_step()
            spec, own, end = self._spec(input_fn, ModeKeys.PREDICT)
            predictions = spec.predictions
            if predict_keys is not None:
                predictions = chosen(predictions, [predict_keys] if isinstance(predict_keys, str) else predict_keys)
            hooks = [*spec.prediction_hooks, *checked_hooks(hooks), *own]
            session = self._session(spec, hooks, checkpoint_path)
        try:
            while not session.should_stop():
                try:
                    batches = self._batches(session.run(predictions))
                except tf.errors.OutOfRangeError:
                    break
                for batch in batches:
                    yield from examples(batch) if yield_single_examples else [batch]
        finally:
            session.close()
        self._check_end(end)

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Exports the model of one mode as a SavedModel for the CPU; see `experimental_export_all_saved_models`.

        Args:
            export_dir_base: the folder in which a folder named by the time is created.
            serving_input_receiver_fn: a function that returns an input receiver.
            assets_extra: paths in the folder assets.extra, and the files to copy there.
            as_text: whether the SavedModel is written as text.
            checkpoint_path: a checkpoint; None means the latest one.
            experimental_mode: the mode, one of ModeKeys.

        Returns:
            The path of the SavedModel, in bytes. Errors are those of `experimental_export_all_saved_models`.
        """
        receivers = {experimental_mode: serving_input_receiver_fn}
        return self.experimental_export_all_saved_models(
            export_dir_base, receivers, assets_extra, as_text, checkpoint_path
        )

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """Deprecated; as `export_saved_model`, with the choice to strip attributes that have default values.

        Args:
            export_dir_base: the folder in which a folder named by the time is created.
            serving_input_receiver_fn: a function that returns an input receiver.
            assets_extra: paths in the folder assets.extra, and the files to copy there.
            as_text: whether the SavedModel is written as text.
            checkpoint_path: a checkpoint; None means the latest one.
            strip_default_attrs: whether attributes with default values are left out; `export_saved_model` strips them.

        Returns:
            The path of the SavedModel, in bytes. Errors are those of `export_saved_model`.
        """
        receivers = {ModeKeys.PREDICT: serving_input_receiver_fn}
        checkpoint = self._checkpoint(checkpoint_path)
        return export_all(
            *(export_dir_base, receivers, self._host_spec, checkpoint, assets_extra, as_text, strip_default_attrs)
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str,
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Exports a SavedModel with a graph for each mode; its variables are those of a checkpoint.

        Args:
            export_dir_base: the folder in which a folder named by the time is created.
            input_receiver_fn_map: for each mode a function that returns an input receiver.
            assets_extra: paths in the folder assets.extra, and the files to copy there.
            as_text: whether the SavedModel is written as text.
            checkpoint_path: a checkpoint; None means the latest one.

        Returns:
            The path of the SavedModel, in bytes.

        Raises:
            ValueError: a mode is none of ModeKeys, an input_receiver_fn is None, or there is no checkpoint.
        """
        checkpoint = self._checkpoint(checkpoint_path)
        return export_all(export_dir_base, input_receiver_fn_map, self._host_spec, checkpoint, assets_extra, as_text)

    def _spec(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, list[Any], EndOfData | None]:
        """Builds the model in the default graph; returns the spec, the hooks for its input, and one that notes the end
        of the input.
        """
        features, labels = self._call_input_fn(input_fn, mode), None
        if isinstance(features, tf.data.Dataset):
            iterator = v1.data.make_initializable_iterator(features)
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            features = iterator.get_next()
        if isinstance(features, tuple):
            features, labels = features if len(features) == 2 else (features[0], None)
        return self._host_spec(features, labels, mode), [], None

    def _batches(self, predictions: Any) -> list[Any]:
        """The predictions of each batch of one run."""
        return [predictions]

    def _host_spec(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        """The model on the CPU, in the default graph."""
        spec = self._call_model_fn(features, labels, mode)
        if not isinstance(spec, EstimatorSpec):
            raise ConfigurationError(f"Expected model_fn to return an EstimatorSpec. Received: {spec!r}.")
        return spec

    def _call_model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        given = {"labels": labels, "mode": mode, "params": self._local_params(mode), "config": self.config}
        if labels is not None and not takes(self._model_fn, "labels"):
            raise ConfigurationError(
                f"Expected model_fn to take labels. Received: {inspect.signature(self._model_fn)}, and a data set of "
                "features and labels."
            )
        inputs = () if features is None and not takes(self._model_fn, "features") else (features,)
        return self._model_fn(*inputs, **{name: value for name, value in given.items() if takes(self._model_fn, name)})

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        given = {"mode": mode, "params": self._local_params(mode), "config": self.config}
        with tf.device("/device:CPU:0"):
            return input_fn(**{name: value for name, value in given.items() if takes(input_fn, name)})

    def _local_params(self, mode: str) -> dict[str, Any]:
        return self.params

    @contextlib.contextmanager
    def _graph(self) -> Iterator[tf.Graph]:
        with tf.Graph().as_default() as graph, graph.device(self._config.device_fn), fresh_keras_names():
            v1.set_random_seed(self._config.tf_random_seed)
            yield graph

    def _session(self, spec: Any, hooks: list[Any], checkpoint_path: str | None) -> Any:
        creator = v1.train.ChiefSessionCreator(
            scaffold=spec.scaffold,
            checkpoint_filename_with_path=checkpoint_path or self.latest_checkpoint(),
            config=self._session_config(),
        )
        return v1.train.MonitoredSession(creator, hooks)

    def _session_config(self) -> Any:
        return self._config.session_config or v1.ConfigProto(allow_soft_placement=True)

    def _check_end(self, end: EndOfData | None) -> None:
        left = end.left_over() if end is not None and end.reached else 0
        if left:
            raise ConfigurationError(
                f"Expected batches for a whole number of loops of {self._iterations_per_loop} iterations. Received: "
                f"{left} batches at the end that fill none. Limit the steps or the number of predictions, or call "
                "repeat() on the data set."
            )
