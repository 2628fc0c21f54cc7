"""`ipu.accelerate`, which runs Keras models on the engine, or with plain Keras where the engine refuses.

No strategy is in scope: models that are built where an acceleration is in force belong to its strategy, and variables
are device variables, which TensorFlow reads and writes like its own. TensorFlow runs all else.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import variable_v1, variables

from engine.errors import ConfigurationError
from ipu._internal.profiling.programs import is_model
from ipu._internal.thread_values import ThreadValue
from ipu._internal.types import Variable
from ipu.ipu_strategy import IPUExtendedV1, IPUStrategyV1, device_variable, is_liftable
from keras_ext.model_copies import copy_of
from keras_ext.random_generators import Generators
from keras_ext.types import KerasModel
from keras_ext.wrapping import Original, wrap

logger = logging.getLogger("ipu")
BUILT_BEFORE = "It was built before ipu.accelerate(). Build it after, or run ipu.accelerate(model), a copy of it."


class Fallback(NamedTuple):
    """A method of a model that plain Keras runs, and the engine's reason."""

    model: str
    method: str
    reason: str


class AcceleratingExtended(IPUExtendedV1):
    """The object that TensorFlow calls back; it takes variables, optimizers and metrics from outside, too."""

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        return _created(next_creator, self._device, {**kwargs, "distribute_strategy": None})

    def variable_created_in_scope(self, v: Variable) -> bool:
        """True: the engine takes any variable."""
        return True

    def colocate_vars_with(self, colocate_with_variable: Variable) -> Any:
        """A scope without effect: an optimizer of an accelerated model may be built outside of a scope, too."""
        return contextlib.nullcontext()

    def update(
        self, var: Variable, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        """Calls `fn` with `var`; outside of a scope as TensorFlow does without a strategy."""
        if tf.distribute.has_strategy():
            return super().update(var, fn, args, kwargs, group)
        return tf.distribute.get_strategy().extended.update(var, fn, args, kwargs, group)


class AcceleratingStrategy(IPUStrategyV1):
    """The strategy of models that plain Keras takes over where the engine refuses; functions stay TensorFlow's."""

    _extended_type = AcceleratingExtended
    serves_functions = False

    def __init__(self) -> None:
        super().__init__(enable_dataset_iterators=False)
        self.fallbacks: list[Fallback] = []

    def scope(self) -> Any:
        """Makes variables device variables, while the context is open; TensorFlow and callbacks find no strategy."""
        return _creates.replaced_by(True)


def _created(next_creator: Callable[..., Any], device: str, arguments: dict[str, Any]) -> Any:
    """A device variable, or TensorFlow's where a variable cannot be eager."""
    if not is_liftable(arguments.get("initial_value")):
        return next_creator(**arguments)
    return device_variable(arguments, device)


class Acceleration(contextlib.AbstractContextManager["Acceleration"]):
    """The result of `ipu.accelerate()`: in force at once, until the end of its `with` block if it has one.

    Without a block it is in force in all threads, with a block only in the block's thread.
    """

    def __init__(self) -> None:
        self.strategy: AcceleratingStrategy | None = None
        self._thread: int | None = None
        self._outer = tf.distribute.get_strategy().extended
        try:
            self.strategy = AcceleratingStrategy()
        except ConfigurationError as error:  # Keras 3 on another backend
            logger.warning("Models run with plain Keras: %s", error)
        else:
            _create_device_variables()
            _in_force.append(self)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The methods that ran with plain Keras so far, as tuples (model, method, reason)."""
        return () if self.strategy is None else tuple(self.strategy.fallbacks)

    def __enter__(self) -> Acceleration:
        """The object itself, from here on in force in this thread."""
        self._thread = threading.get_ident()
        if self.strategy is not None and self not in _in_force:
            _in_force.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        """Models made from here on are plain; those made before stay on the engine."""
        if self in _in_force:
            _in_force.remove(self)

    def is_in_force(self) -> bool:
        """Whether the acceleration is in force in this thread; a strategy's scope that began later takes precedence."""
        if self._thread not in (None, threading.get_ident()):
            return False
        return not tf.distribute.has_strategy() or tf.distribute.get_strategy().extended is self._outer


_in_force: list[Acceleration] = []
"""The accelerations in force, which the program itself may have dropped."""
_creates: ThreadValue[bool | None] = ThreadValue(None)
"""Whether variables are device variables; None where the acceleration in force decides."""


def current() -> Acceleration | None:
    """The innermost acceleration that is in force here; None for plain Keras."""
    if not _in_force or _creates.value is False:
        return None
    return next((each for each in reversed(_in_force) if each.is_in_force()), None)


def suspended() -> contextlib.AbstractContextManager[Any]:
    """Suspends acceleration in this thread, while the context is open."""
    return _creates.replaced_by(False)


def accelerate(model: KerasModel | None = None) -> Any:
    """Makes Keras models run on the engine: those built from now on, or in a `with` block, or a copy of `model`.

    Nothing else of a program changes: TensorFlow runs its own loops with `tf.GradientTape`. A model that was built
    before stays with plain Keras, after one warning. Where the engine refuses `fit`, `evaluate` or `predict` of a
    model, one warning says why, and plain Keras runs that method until the model is compiled again. Data, callbacks and
    random numbers are then as if the engine had not been asked. If a shape is refused after other batches have run,
    only batches of that shape run with plain Keras. Where `compile` sets no `steps_per_execution`, a call of the engine
    runs up to 32 steps, or 1 if a callback has methods for batches. No chip's memory limits the models.

    Args:
        model: a model of Keras 3 or tf_keras, built or not, compiled or not. None for all that are built later.

    Returns:
        Without a model a context manager, in force already, whose `fallbacks` lists what runs with plain Keras, as
        tuples (model, method, reason). With one a copy of it: same class, configuration, weights, compiled arguments
        and optimizer state; the model itself, after a warning, where it cannot be copied.

    Raises:
        TypeError: `model` is no model.
    """
    if model is None:
        return Acceleration()
    if not is_model(model):
        raise TypeError(f"Expected a model of Keras 3 or tf_keras. Received: {model!r}. Give the model, or nothing.")
    generators = Generators(True)
    with Acceleration():
        try:
            return copy_of(model)
        except Exception as error:  # of the model's own methods, too
            logger.warning("Model %r stays with plain Keras, as it cannot be copied: %s", model.name, error)
            return model
        finally:
            generators.restore_all()


def _create_device_variables() -> None:
    """Makes TensorFlow create device variables where an acceleration is in force; wraps its functions once."""
    if hasattr(variables.default_variable_creator_v2, "_ipu_accelerates"):
        return
    for module, name in ((variables, "default_variable_creator_v2"), (variable_v1, "default_variable_creator")):
        wrap(module, name, _create)
        getattr(module, name)._ipu_accelerates = True


def _create(create: Original, next_creator: Any = None, **arguments: Any) -> Any:
    creates = _creates.value if _creates.value is not None else current() is not None
    if not creates or arguments.get("use_resource") is False:
        return create(next_creator, **arguments)
    return _created(functools.partial(create, next_creator), "/device:CPU:0", arguments)


def belong(model_class: type, strategy_attribute: str) -> None:
    """Makes each model of a framework belong to the acceleration that is in force where it is built."""
    wrap(model_class, "__init__", functools.partial(_initialize, strategy_attribute))


def _initialize(
    strategy_attribute: str, initialize: Original, model: KerasModel, *arguments: Any, **named: Any
) -> None:
    acceleration = current()
    initialize(model, *arguments, **named)
    if acceleration is not None:
        setattr(model, strategy_attribute, acceleration.strategy)


@contextlib.contextmanager
def plain(model: KerasModel, method: str) -> Iterator[None]:
    """Suspends acceleration for a model that belongs to no strategy, while the context is open; logs one warning."""
    acceleration = current()
    if acceleration is not None and acceleration.strategy is not None and not vars(model).get("_ipu_told"):
        vars(model)["_ipu_told"] = True
        acceleration.strategy.fallbacks.append(Fallback(model.name, method, BUILT_BEFORE))
        logger.warning("Model %r runs with plain Keras: %s", model.name, BUILT_BEFORE)
    with suspended():
        yield
