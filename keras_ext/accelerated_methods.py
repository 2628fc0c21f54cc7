"""The methods of accelerated models, which choose the steps of an engine call and fall back to plain Keras."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError, IPUError, OutOfTileMemory, StepCountError, UnsupportedOperation
from ipu._internal.compiler.fit import chip_is_checked
from ipu._internal.thread_values import ThreadValue
from keras_ext.acceleration import AcceleratingStrategy, Fallback, belong, plain, suspended
from keras_ext.attempts import Attempt, Replayed, attempt, replayed_of
from keras_ext.batch_hooks import see_batches
from keras_ext.data_kinds import Kinds, kinds_of
from keras_ext.errors import UnsupportedData
from keras_ext.frameworks.common import outside_of_strategies
from keras_ext.model_copies import forget_traces
from keras_ext.own_functions import refuse_own_function
from keras_ext.plain_steps import Outside, falls_back
from keras_ext.runs import Pace, pace, steps_are_chosen
from keras_ext.training import StepFunction
from keras_ext.types import KerasModel, Nest
from keras_ext.wrapping import Original, wrap

logger = logging.getLogger("ipu")
REFUSALS = (UnsupportedOperation, ConfigurationError, StepCountError, OutOfTileMemory)
STEPS = 32
"""Most steps of one call where `compile` names none. A call costs some 0.1 ms, and progress is shown between calls."""
MODES = {
    **{"fit": "train", "evaluate": "test", "predict": "predict"},
    **{"train_on_batch": "train", "test_on_batch": "test", "predict_on_batch": "predict"},
}
LOOPS = ("fit", "evaluate", "predict")
CONTINUES = "an update takes several batches, callbacks follow each step, stages form a pipeline, or data are refused"
"""Why plain Keras does not continue, batch by batch, a call of which batches have run."""
REASON = re.compile(r"(?<=\.) (?=It comes|docs/)")
"""Boundary in an error between the reason and what follows: where an operation comes from, and its replacement."""


@dataclass
class _Accelerated:
    """Facts about one model since it was compiled."""

    chooses_steps: bool = True
    steps: int = 1
    refused: dict[str, Kinds | None] = field(default_factory=dict)
    """Modes that the engine refuses, each with the kinds of data that alone are refused, None for all."""


@dataclass(frozen=True)
class AcceleratedKeras:
    """The parts of one Keras: a model's attribute for its strategy, and how its methods take steps and data.

    `steps_need_length` says whether several steps need data of a known length, `shows_means` whether the progress bar
    of a mode shows means over steps, `iterator` which iterators it takes, and `as_source` makes one of a reader.
    `remake_validation` makes plain Keras rebuild the cached validation data of a fit, from arguments that a function
    computes from those of the engine.
    """

    strategy_attribute: str
    set_steps: Callable[[Any, int], None]
    steps_need_length: bool
    shows_means: Callable[[Any, str], bool]
    iterator: Callable[[Any], bool]
    as_source: Callable[[Any], Any]
    remake_validation: Callable[[Any, Callable[[Any], Any]], None]


_REFUSED = object()
_running: ThreadValue[KerasModel | None] = ThreadValue(None)


def install(model_class: type, framework: AcceleratedKeras) -> None:
    """Wraps the methods of one framework's models; models of other strategies behave as before."""
    belong(model_class, framework.strategy_attribute)
    for method, mode in MODES.items():
        signature = inspect.signature(getattr(model_class, method))
        wrap(model_class, method, functools.partial(_run, method, mode, signature, framework))
    owner = next(
        kind for kind in model_class.__mro__ if "compile" in vars(kind)
    )  # Keras compares it to find custom ones
    wrap(owner, "compile", functools.partial(_compile, inspect.signature(owner.compile), framework))  # type: ignore[attr-defined]


def _compile(
    signature: inspect.Signature,
    framework: AcceleratedKeras,
    compile: Original,
    model: KerasModel,
    *given: object,
    **named: Any,
) -> None:
    arguments = signature.bind(model, *given, **named).arguments
    arguments = {**arguments, **arguments.get("kwargs", {})}
    chooses = not any(name.endswith("steps_per_execution") for name in arguments)
    vars(model)["_ipu_accelerated"] = _Accelerated(chooses)
    forget_traces(model)
    strategy = getattr(model, framework.strategy_attribute, None)
    if strategy is None or isinstance(strategy, AcceleratingStrategy):
        with outside_of_strategies():
            return compile(model, *given, **named)
    return compile(model, *given, **named)


def _run(
    name: str,
    mode: str,
    signature: inspect.Signature,
    framework: AcceleratedKeras,
    method: Original,
    model: KerasModel,
    *given: object,
    **named: Any,
) -> Any:
    strategy = getattr(model, framework.strategy_attribute, None)
    if isinstance(strategy, AcceleratingStrategy):
        if name not in LOOPS and _calls(model, mode) and not tf.distribute.has_strategy():
            result = _run_batch(mode, method, model, given, named)
            if result is not _REFUSED:
                return result
        with outside_of_strategies():
            return _run_accelerated(name, mode, framework, method, model, signature.bind(model, *given, **named))
    if strategy is not None or _running.value is model:  # or plain Keras runs a refused method
        return method(model, *given, **named)
    with plain(model, name), outside_of_strategies():
        return method(model, *given, **named)


def _run_batch(mode: str, method: Original, model: KerasModel, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The result of a method for one batch, in less time if its function has run; _REFUSED for a refused batch."""
    state, before = vars(model).get("_ipu_accelerated"), _calls(model, mode)
    if state is None or mode in state.refused:
        return _REFUSED
    outer, chip_is_checked.value = chip_is_checked.value, False
    try:
        return method(model, *given, **named)
    except REFUSALS:
        if _calls(model, mode) != before:
            raise
        return _REFUSED
    finally:
        chip_is_checked.value = outer


def _run_accelerated(
    name: str, mode: str, framework: AcceleratedKeras, method: Original, model: KerasModel, call: inspect.BoundArguments
) -> Any:
    strategy = getattr(model, framework.strategy_attribute)
    state = vars(model).setdefault("_ipu_accelerated", _Accelerated())
    # An evaluation in a fit takes the steps of the fit: its data have been opened with that number.
    chooses = state.chooses_steps and _running.value is not model
    shown, given = None, dict(call.arguments)
    of_data = state.refused.get(mode)
    if of_data is not None and of_data != kinds_of(given):
        _ask_again(model, state, mode)
    if name in LOOPS and mode not in state.refused:
        try:
            refuse_own_function(model, mode)
        except UnsupportedOperation as error:
            state.refused[mode] = None
            _note_fallback(strategy, model, name, error)
    if chooses and name in LOOPS and mode not in state.refused:
        shows = call.arguments.get("verbose", "auto") in ("auto", 1)
        steps = 1 if shows and framework.shows_means(model, mode) else _steps_for(call.arguments, framework)
        _set_steps(framework, model, state, steps)
        shown = Pace() if shows and steps > 1 else None
    chosen = steps_are_chosen.replaced_by(state.chooses_steps)
    with _running.replaced_by(model), chosen, pace.replaced_by(shown):
        if mode in state.refused:
            return _run_plain(framework, mode, method, model, call, state, chooses)
        before = _calls(model, mode)

        def has_run() -> bool:
            return _calls(model, mode) != before

        begun = Attempt(model, has_run, before == 0, mode == "train") if name in LOOPS or before == 0 else None
        _make_replayed(framework, model, call, has_run)

        def fall_back(refused: KerasModel, error: IPUError) -> Outside | None:
            if refused is not model or not isinstance(error, REFUSALS) or not has_run():
                return None
            _note_fallback(strategy, model, name, error, "some batches of ")
            return functools.partial(_plain, framework, model)

        try:
            with chip_is_checked.replaced_by(False), falls_back.replaced_by(fall_back), attempt.replaced_by(begun):
                return method(*call.args, **call.kwargs)
        except REFUSALS as error:
            if has_run():
                error.add_note(f"Plain Keras does not continue this {name} batch by batch: {CONTINUES}.")
                raise
            state.refused[mode] = kinds_of(given) if isinstance(error, UnsupportedData) else None
            _note_fallback(strategy, model, name, error)
        if begun is not None:
            begun.refuse()
            if begun.callback_list is not None:
                call.arguments["callbacks"] = begun.callback_list
        try:
            with attempt.replaced_by(begun):
                _rewind(framework, call.arguments)
                return _run_plain(framework, mode, method, model, call, state, chooses)
        except Exception:
            _ask_again(model, state, mode)  # the call was wrong, perhaps not the model
            raise


def _ask_again(model: KerasModel, state: _Accelerated, mode: str) -> None:
    """Lets the engine run a mode that it has refused."""
    state.refused.pop(mode, None)
    _drop_plain_functions(model, mode)


def _make_replayed(
    framework: AcceleratedKeras, model: KerasModel, call: inspect.BoundArguments, has_run: Callable[[], bool]
) -> None:
    """Replaces iterators among the arguments of a call, so that plain Keras can read the same items again."""
    tested = _calls(model, "test")
    for source, runs in (("x", has_run), ("validation_data", lambda: _calls(model, "test") != tested)):
        data = call.arguments.get(source)
        if framework.iterator(data) and replayed_of(data) is None:
            call.arguments[source] = framework.as_source(Replayed(data, runs).again())


def _rewind(framework: AcceleratedKeras, arguments: dict[str, Any]) -> None:
    """Replaces the data among the arguments of a call by the same data from their beginning."""
    if "x" in arguments:
        arguments["x"] = _again(framework, arguments["x"])
    validated = replayed_of(arguments.get("validation_data"))
    if validated is not None:
        arguments["validation_data"] = framework.as_source(validated.again())


def _again(framework: AcceleratedKeras, data: Nest) -> Any:
    """Data that begin again, if they come from an iterator or a pass over them has been opened; else as they are."""
    replayed = replayed_of(data)
    if replayed is None and attempt.value is not None:
        return attempt.value.data_again(data)
    return data if replayed is None else framework.as_source(replayed.again())


def _set_steps(framework: AcceleratedKeras, model: KerasModel, state: _Accelerated, steps: int) -> None:
    """Sets the steps of a call, and drops Keras' own functions, which are made for one number of steps."""
    if steps == state.steps:
        return
    framework.set_steps(model, steps)
    state.steps = steps
    _drop_plain_functions(model, "train", "test", "predict")


def _drop_plain_functions(model: KerasModel, *modes: str) -> None:
    """Drops functions that plain Keras has made."""
    for mode in modes:
        if not isinstance(getattr(model, f"{mode}_function"), StepFunction):
            setattr(model, f"{mode}_function", None)


def _run_plain(
    framework: AcceleratedKeras,
    mode: str,
    method: Original,
    model: KerasModel,
    call: inspect.BoundArguments,
    state: _Accelerated,
    chooses: bool,
) -> Any:
    """Runs a method with plain Keras, which finds a model without a strategy and makes its own function.

    Where the program has set no steps, Keras' default of 1 holds; the steps of an outer method are restored afterwards.
    """
    if chooses:
        _set_steps(framework, model, state, 1)
    of_outer = state.steps if state.chooses_steps else 1
    if of_outer > 1:
        framework.set_steps(model, 1)
    if isinstance(getattr(model, f"{mode}_function"), StepFunction):
        setattr(model, f"{mode}_function", None)
    try:
        with _plain(framework, model):
            if call.arguments.get("kwargs", {}).get("_use_cached_eval_dataset"):
                framework.remake_validation(model, functools.partial(_again, framework))
            return method(*call.args, **call.kwargs)
    finally:
        if of_outer > 1:
            framework.set_steps(model, of_outer)


@contextlib.contextmanager
def _plain(framework: AcceleratedKeras, model: KerasModel) -> Iterator[None]:
    """Makes the model plain Keras', while the context is open."""
    strategy = getattr(model, framework.strategy_attribute)
    setattr(model, framework.strategy_attribute, None)
    try:
        with suspended(), outside_of_strategies():
            yield
    finally:
        setattr(model, framework.strategy_attribute, strategy)


def _note_fallback(
    strategy: AcceleratingStrategy, model: KerasModel, name: str, error: IPUError, part: str = ""
) -> None:
    reason = REASON.split(str(error).splitlines()[0])[0]
    strategy.fallbacks.append(Fallback(model.name, name, reason))
    logger.warning("Model %r runs %s%s with plain Keras: %s", model.name, part, name, reason)


def _calls(model: KerasModel, mode: str) -> int:
    """Number of times that the function of a mode has run a program."""
    return getattr(getattr(model, f"{mode}_function", None), "calls", 0)


def _steps_for(arguments: Mapping[str, Any], framework: AcceleratedKeras) -> int:
    """The steps of a call: one if a callback is to see each batch, or if the length of the data is not known."""
    if see_batches(arguments.get("callbacks")):
        return 1
    given = (arguments.get("x"), arguments.get("steps_per_epoch", arguments.get("steps")))
    of_validation = (arguments.get("validation_data"), arguments.get("validation_steps"))
    known = not framework.steps_need_length or (_has_length(*given) and _has_length(*of_validation))
    return STEPS if known else 1


def _has_length(data: Any, steps: int | None) -> bool:
    if steps is not None:
        return True
    return bool(data.cardinality() >= 0) if isinstance(data, tf.data.Dataset) else not hasattr(data, "__next__")
