"""`ipu.accelerate`: models on the engine without another word of this API, and with plain Keras where it refuses."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from engine.errors import ConfigurationError, IPUError, OutOfTileMemory, StepCountError, UnsupportedOperation
from ipu._internal.compiler.fit import chip_is_checked
from ipu._internal.thread_values import ThreadValue
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.model_copies import copy_of
from keras_ext.plain_steps import Outside, falls_back
from keras_ext.training import StepFunction
from keras_ext.types import KerasModel
from keras_ext.wrapping import Original, wrap

logger = logging.getLogger("ipu")
REFUSALS = (UnsupportedOperation, ConfigurationError, StepCountError, OutOfTileMemory)
STEPS = 32
"""Steps of one call where `compile` names none. A call costs some 0.1 ms, and progress is shown between calls."""
MODES = {
    **{"fit": "train", "evaluate": "test", "predict": "predict"},
    **{"train_on_batch": "train", "test_on_batch": "test", "predict_on_batch": "predict"},
}
CONTINUES = "an update takes several batches, callbacks follow each step, stages form a pipeline, or data are refused"
"""Why plain Keras does not continue, batch by batch, a call of which batches have run."""
REASON = re.compile(r"(?<=\.) (?=It comes|docs/)")
"""What follows the reason in an error: where an operation comes from, and what to write instead."""
HOOKS = tuple(f"on_{mode}batch_{when}" for mode in ("", "train_", "test_", "predict_") for when in ("begin", "end"))


class Fallback(NamedTuple):
    """A method of a model that plain Keras runs, and the engine's reason."""

    model: str
    method: str
    reason: str


class _PlainStrategy(IPUStrategyV1):
    """Runs functions as TensorFlow does, eagerly, too."""

    serves_functions = False

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """As `tf.distribute.Strategy.run`."""
        return tf.distribute.Strategy.run(self, fn, args, kwargs, options)


class AcceleratingStrategy(IPUStrategyV1):
    """The strategy of models that plain Keras takes over where the engine refuses; functions stay TensorFlow's."""

    serves_functions = False

    def __init__(self) -> None:
        super().__init__(enable_dataset_iterators=False)
        self.fallbacks: list[Fallback] = []

    def without_keras_extensions(self) -> IPUStrategyV1:
        """The strategy of a model while plain Keras runs it."""
        return _PlainStrategy(self._ipu_device, self._cpu_device, False, enable_keras_extensions=False)


class Acceleration(contextlib.AbstractContextManager["Acceleration"]):
    """The result of `ipu.accelerate()`: in force at once, until the end of its `with` block if it has one."""

    def __init__(self) -> None:
        self._scope: Any = contextlib.nullcontext()
        self._strategy: AcceleratingStrategy | None = None
        try:
            self._strategy = AcceleratingStrategy()
        except ConfigurationError as error:  # Keras 3 on another backend
            logger.warning("Models run with plain Keras: %s", error)
        else:
            self._scope = self._strategy.scope()
        self._scope.__enter__()
        _in_force.add(self)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The methods that ran with plain Keras so far, as tuples (model, method, reason)."""
        return () if self._strategy is None else tuple(self._strategy.fallbacks)

    def __exit__(self, *exception: Any) -> None:
        """Models made from here on are plain; those made before stay on the engine."""
        _in_force.discard(self)
        self._scope.__exit__(*exception)


_in_force: set[Acceleration] = set()
"""Results that a program may have dropped: a strategy's scope ends when it is collected."""


def accelerate(model: KerasModel | None = None) -> Any:
    """Makes Keras models run on the engine: those built from now on, or in a `with` block, or a copy of `model`.

    Nothing else of a program changes. What the engine refuses runs with plain Keras, after one warning that says why:
    from then on that of `fit`, `evaluate` or `predict` which was refused, until the model is compiled again. Callbacks
    then see the beginning of that call twice. Of a shape that is refused once other batches have run, batches alone do.
    Where `compile` gives no `steps_per_execution`, a call of the engine runs 32 steps, and 1 where a callback has
    methods for batches. No chip's memory limits the models.

    Args:
        model: a model of Keras 3 or tf_keras, built or not, compiled or not. None for all that are built later.

    Returns:
        Without a model a context manager, in force already, whose `fallbacks` lists what runs with plain Keras, as
        tuples (model, method, reason). With one a copy of it: same class, configuration, weights, compiled arguments
        and optimizer state; the model itself, after a warning, where it cannot be copied.
    """
    if model is None:
        return Acceleration()
    with Acceleration():
        try:
            return copy_of(model)
        except Exception as error:  # of the model's own methods, too
            logger.warning("Model %r stays with plain Keras, as it cannot be copied: %s", model.name, error)
            return model


@dataclass
class _Accelerated:
    """What is known of one model since it was compiled."""

    chooses_steps: bool = True
    steps: int = 1
    refused: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Framework:
    """One framework's attribute of a model for its strategy, how steps are set, and whether several need a length."""

    strategy_attribute: str
    set_steps: Callable[[Any, int], None]
    steps_need_length: bool


_running: ThreadValue[KerasModel | None] = ThreadValue(None)
steps_are_chosen = ThreadValue(False)
"""Whether the steps of a call of the engine are this file's choice, in the method that runs in this thread."""


def install(model_class: type, framework: Framework) -> None:
    """Wraps the methods of one framework's models; models of other strategies behave as before."""
    for method, mode in MODES.items():
        signature = inspect.signature(getattr(model_class, method))
        wrap(model_class, method, functools.partial(_run, method, mode, signature, framework))
    owner = next(
        kind for kind in model_class.__mro__ if "compile" in vars(kind)
    )  # Keras compares it to find custom ones
    wrap(owner, "compile", functools.partial(_compile, inspect.signature(owner.compile)))  # type: ignore[attr-defined]


def _compile(signature: inspect.Signature, compile: Original, model: KerasModel, *given: object, **named: Any) -> None:
    arguments = signature.bind(model, *given, **named).arguments
    arguments = {**arguments, **arguments.get("kwargs", {})}
    chooses = not any(name.endswith("steps_per_execution") for name in arguments)
    vars(model)["_ipu_accelerated"] = _Accelerated(chooses)
    compile(model, *given, **named)


def _run(
    name: str,
    mode: str,
    signature: inspect.Signature,
    framework: Framework,
    method: Original,
    model: KerasModel,
    *given: object,
    **named: Any,
) -> Any:
    strategy = getattr(model, framework.strategy_attribute, None)
    if not isinstance(strategy, AcceleratingStrategy):
        return method(model, *given, **named)
    state = vars(model).setdefault("_ipu_accelerated", _Accelerated())
    call = signature.bind(model, *given, **named)
    # The steps of a fit are those of the evaluations in it, too: its data have been opened with them.
    chooses = state.chooses_steps and _running.value is not model
    if chooses and name in ("fit", "evaluate", "predict") and mode not in state.refused:
        _set_steps(framework, model, state, _steps_for(call.arguments, framework.steps_need_length))
    with _running.replaced_by(model), steps_are_chosen.replaced_by(state.chooses_steps):
        if mode in state.refused:
            return _run_plain(framework, mode, method, model, call, state, chooses)
        before = _calls(model, mode)

        def has_run() -> bool:
            return _calls(model, mode) != before

        source = call.arguments.get("x")
        replayed = _Replayed(source, has_run)
        if isinstance(source, types.GeneratorType):
            call.arguments["x"] = replayed.items()

        def fall_back(refused: KerasModel, error: IPUError) -> Outside | None:
            if refused is not model or not isinstance(error, REFUSALS) or not has_run():
                return None
            _tell(strategy, model, name, error, "some batches of ")
            return functools.partial(_plain, framework, model)

        try:
            with chip_is_checked.replaced_by(False), falls_back.replaced_by(fall_back):
                return method(*call.args, **call.kwargs)
        except REFUSALS as error:
            if has_run():
                error.add_note(f"Plain Keras does not continue this {name} batch by batch: {CONTINUES}.")
                raise
            state.refused.add(mode)
            _tell(strategy, model, name, error)
        if isinstance(source, types.GeneratorType):
            call.arguments["x"] = replayed.items()
        return _run_plain(framework, mode, method, model, call, state, chooses)


def _set_steps(framework: Framework, model: KerasModel, state: _Accelerated, steps: int) -> None:
    """Sets the steps of a call; Keras' own functions are made for a number of them."""
    if steps == state.steps:
        return
    framework.set_steps(model, steps)
    state.steps = steps
    for mode in ("train", "test", "predict"):
        if not isinstance(getattr(model, f"{mode}_function"), StepFunction):
            setattr(model, f"{mode}_function", None)


def _run_plain(
    framework: Framework,
    mode: str,
    method: Original,
    model: KerasModel,
    call: inspect.BoundArguments,
    state: _Accelerated,
    chooses: bool,
) -> Any:
    """The result of a method while Keras finds a model of a strategy without the engine, and makes its own function.

    Steps that a program has not given are Keras' own number, until the end of a method within another.
    """
    if chooses:
        _set_steps(framework, model, state, 1)
    of_outer = state.steps if state.chooses_steps else 1
    if of_outer > 1:
        framework.set_steps(model, 1)
    call.arguments.get("kwargs", {}).pop("_use_cached_eval_dataset", None)  # made for the engine
    if isinstance(getattr(model, f"{mode}_function"), StepFunction):
        setattr(model, f"{mode}_function", None)
    try:
        with _plain(framework, model):
            return method(*call.args, **call.kwargs)
    finally:
        if of_outer > 1:
            framework.set_steps(model, of_outer)


@contextlib.contextmanager
def _plain(framework: Framework, model: KerasModel) -> Iterator[None]:
    """Within, the model's strategy leaves it to Keras."""
    strategy = getattr(model, framework.strategy_attribute)
    setattr(model, framework.strategy_attribute, strategy.without_keras_extensions())
    try:
        yield
    finally:
        setattr(model, framework.strategy_attribute, strategy)


def _tell(strategy: AcceleratingStrategy, model: KerasModel, name: str, error: IPUError, part: str = "") -> None:
    reason = REASON.split(str(error).splitlines()[0])[0]
    strategy.fallbacks.append(Fallback(model.name, name, reason))
    logger.warning("Model %r runs %s%s with plain Keras: %s", model.name, part, name, reason)


def _calls(model: KerasModel, mode: str) -> int:
    """How often the function of a mode has run a program."""
    return getattr(getattr(model, f"{mode}_function", None), "calls", 0)


class _Replayed:
    """A generator whose first items can be read a second time, if nothing `has_run` meanwhile."""

    def __init__(self, source: Any, has_run: Callable[[], bool]) -> None:
        self._source, self._has_run = source, has_run
        self._kept: list[Any] = []
        self._lock, self._reader = threading.Lock(), object()

    def items(self) -> Iterator[Any]:
        """All items; one reader at a time: an earlier one, which a thread may have, ends."""
        with self._lock:
            self._reader = reader = object()
        yield from self._kept
        while True:
            with self._lock:
                if self._reader is not reader:
                    return
                try:
                    item = next(self._source)
                except StopIteration:
                    return
                if not self._has_run():
                    self._kept.append(item)
            yield item


def _steps_for(arguments: Mapping[str, Any], need_length: bool) -> int:
    """The steps of a call: one if a callback is to see each batch, or if the length of the data is not known."""
    callbacks = arguments.get("callbacks") or ()
    callbacks = callbacks if isinstance(callbacks, list | tuple) else getattr(callbacks, "callbacks", (callbacks,))
    if any(map(_sees_batches, callbacks)):
        return 1
    data, steps = arguments.get("x"), arguments.get("steps_per_epoch", arguments.get("steps"))
    if not need_length or steps is not None:
        return STEPS
    if isinstance(data, tf.data.Dataset):
        return STEPS if data.cardinality() >= 0 else 1
    return 1 if isinstance(data, Iterator) else STEPS


def _sees_batches(callback: Any) -> bool:
    """Whether a callback has methods for batches; those of Keras that act by epoch have them without effect."""
    is_keras = type(callback).__module__.startswith(("keras.", "tf_keras."))
    frequencies = [getattr(callback, name, None) for name in ("save_freq", "update_freq")]
    if is_keras and "epoch" in frequencies:
        return False
    base = next((kind for kind in type(callback).__mro__ if kind.__name__ == "Callback"), None)
    return base is None or any(
        hook in vars(callback) or getattr(type(callback), hook, None) is not getattr(base, hook, None) for hook in HOOKS
    )
