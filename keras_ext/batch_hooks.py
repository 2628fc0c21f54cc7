"""Whether a callback can see or act on single batches: by its methods, compared with those of Keras' own classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

HOOKS = tuple(f"on_{mode}batch_{when}" for mode in ("", "train_", "test_", "predict_") for when in ("begin", "end"))
Idle = Mapping[Any, Callable[[Any], bool]]
"""Batch methods of Keras' own callbacks, each with a function that says whether a callback's method does nothing."""
_lists: list[type] = []
_idle: dict[Any, Callable[[Any], bool]] = {}


def install(callback: type, callback_list: type, idle: Idle) -> None:
    """Makes one framework's classes known: its base class of callbacks, whose methods do nothing, and its list."""
    _lists.append(callback_list)
    _idle.update({getattr(callback, hook): lambda callback: True for hook in HOOKS})
    _idle.update(idle)


def see_batches(callbacks: Any) -> bool:
    """Whether one of the callbacks that `fit`, `evaluate` or `predict` is given has a method for batches that acts."""
    if callbacks is None:
        return False
    if type(callbacks) in _lists:
        return any(map(_sees_batches, callbacks.callbacks))
    return any(map(_sees_batches, _flat(callbacks)))


def _flat(callbacks: Any) -> Iterable[Any]:
    """Keras flattens nested lists."""
    if not isinstance(callbacks, list | tuple):
        yield callbacks
        return
    for each in callbacks:
        yield from _flat(each)


def _sees_batches(callback: Any) -> bool:
    return not all(map(lambda hook: _does_nothing(callback, hook), HOOKS))


def _does_nothing(callback: Any, hook: str) -> bool:
    method = getattr(callback, hook, None)
    if method is None:
        return hook in HOOKS[:2]  # an object of another class need not have these; the others Keras calls
    idle = _idle.get(getattr(method, "__func__", None))
    return idle is not None and getattr(method, "__self__", None) is callback and idle(callback)


def by_epoch(callback: type, *names: str) -> Callable[[Any], bool]:
    """Makes a test whether a callback acts by epoch and has these methods of a class of Keras, not overridden."""
    has_methods = is_of(callback, *names)

    def acts_by_epoch(each: Any) -> bool:
        frequency = getattr(each, "save_freq", getattr(each, "update_freq", None))
        by_batch = getattr(each, "write_steps_per_second", False) or getattr(each, "_should_trace", False)
        return frequency == "epoch" and not by_batch and has_methods(each)

    return acts_by_epoch


def is_of(callback: type, *names: str) -> Callable[[Any], bool]:
    """Makes a test whether an object has these methods of a class of Keras, not overridden; it may override others."""
    methods = [getattr(callback, name) for name in names]
    return lambda each: all(getattr(type(each), n, None) is m for n, m in zip(names, methods, strict=True))
