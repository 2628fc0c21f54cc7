"""State with which plain Keras repeats a call that the engine refused, as if the engine had not been asked."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.dataset_ops import UnaryUnchangedStructureDataset

from ipu._internal.thread_values import ThreadValue
from keras_ext.epochs.arrays import check_spec
from keras_ext.epochs.batch_types import OfSpecs, batch_type
from keras_ext.epochs.feeds import BatchSource
from keras_ext.plain_steps import batch_of
from keras_ext.random_generators import Generators
from keras_ext.types import KerasModel
from keras_ext.wrapping import Original, wrap

STOPS = ("stop_training", "stop_evaluating", "stop_predicting")
EVENTS = (
    "on_epoch_begin",
    *(f"on_{mode}_{when}" for mode in ("train", "test", "predict") for when in ("begin", "batch_begin")),
)
"""The methods of a list of callbacks that are called before the first step has run."""
REOPENED = (tf.TensorSpec, tf.RaggedTensorSpec)
"""The specs of elements that a generator can give in place of a tf.data set."""
Runs = Callable[[], bool]


class Attempt:
    """One call of a method of `model` on the engine; `has_run` says whether a step has run in it.

    The `first` call also notes what is built and the random numbers that callbacks draw, which takes 0.2 ms. A later
    call can only be refused for a shape that has not run yet; it notes the generators' states if it `draws` numbers, as
    `fit` does to shuffle.
    """

    def __init__(self, model: KerasModel, has_run: Runs, first: bool = True, draws: bool = True) -> None:
        self._model, self.has_run = model, has_run
        self._generators = Generators(first or draws)
        self._first, self._variables = first, _variables_of(model) if first else 0
        self._counts = _update_counts(model)
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._data_events: list[str] = []
        self._enqueuers: list[Any] = []
        self._taken: list[BatchSource] = []
        self._pass: tuple[Iterator[Any], int] | None = None
        self._stops: dict[str, Any] | None = None
        self.callback_list: Any = None
        """Keras' list of callbacks of the call; None before it has been made."""

    def event(self, call: Callable[[], Any], name: str) -> None:
        """Calls a method of the callbacks, unless the refused call has called it already."""
        if self._stops is not None:  # plain Keras runs
            if not self._events or self._events[0][0] != name:
                call()
                return
            _, drawn = self._events.pop(0)
            self._generators.restore(drawn)
            if not self._events:
                for stop, value in self._stops.items():
                    setattr(self._model, stop, value)
        elif self.has_run():
            call()
        elif not self._first:
            call()
            self._events.append((name, {}))
        else:
            before = self._generators.states()
            call()
            self._events.append((name, self._generators.changes(before)))

    def data_event(self, call: Callable[[], Any], name: str, adapter: Any) -> None:
        """Begins or ends an epoch of a Keras 3 PyDataset, whose method is not called again for the repeated call."""
        if self._stops is None:
            self._data_events.append(name)
            self._enqueuers.append(adapter.enqueuer)
            call()
            return
        repeats = self._data_events[:1] == [name]
        if not repeats:
            call()
            return
        del self._data_events[0]
        setattr(adapter.py_dataset, name, lambda: None)
        try:
            call()
        finally:
            delattr(adapter.py_dataset, name)

    def note_enqueuer(self, adapter: Any) -> None:
        """Notes a tf_keras adapter, whose workers end with the call."""
        self._enqueuers.append(getattr(adapter, "_enqueuer", None))

    def note_pass(self, batches: Iterator[Any], opened: int) -> None:
        """Notes the pass over a tf.data set, the last of `opened` passes.

        Raises UnsupportedOperation for elements that the engine cannot take, before one is read.
        """
        if not self.has_run():
            self._pass = batches, opened
            kind = batch_type(batches)
            for spec in kind.specs if isinstance(kind, OfSpecs) else ():
                check_spec(spec)

    def note_taken(self, taken: list[BatchSource]) -> None:
        """Notes the batches that an execution has taken from the pass."""
        if not self.has_run():
            self._taken = taken

    def data_again(self, data: Any) -> Any:
        """A tf.data set whose first pass is the one that the call has opened; other data as they are."""
        if self._pass is None or not isinstance(data, tf.data.Dataset):
            return data
        batches, opened = self._pass
        return ReopenedDataset(data, _items(self._taken, batches), opened)

    def refuse(self) -> None:
        """Ends the call on the engine: random numbers, counts and data are as before it."""
        self._stops = {stop: getattr(self._model, stop) for stop in STOPS if hasattr(self._model, stop)}
        for enqueuer in self._enqueuers:
            if enqueuer is not None:
                enqueuer.stop()
        built = self._first and _variables_of(self._model) != self._variables
        # Keras draws the seeds of initial values by Python's generators, and will not draw them again.
        self._generators.restore_all(but=("python", "tf_keras") if built else ())
        for optimizer, count in self._counts:
            if hasattr(optimizer, "_u_product_counter"):
                slots = len(optimizer._momentums)
                optimizer._u_product_counter = 1 + slots * (slots > 1) if count is None else count


def _variables_of(model: KerasModel) -> int:
    """The number of variables of a model's layers; 0 before it is built."""
    return sum(len(_variables(layer)) for layer in model._flatten_layers() if layer is not model and layer.built)


def _variables(layer: Any) -> Any:
    """A layer's variables; none of one of tf_keras that holds a model which is not built."""
    try:
        return layer.variables
    except ValueError:
        return ()


def _update_counts(model: KerasModel) -> list[tuple[Any, int | None]]:
    """The optimizers, each with its count in Python of traced updates, which Nadam of tf_keras has once it is built."""
    optimizer, counts = getattr(model, "optimizer", None), []
    while optimizer is not None:
        counts.append((optimizer, vars(optimizer).get("_u_product_counter")))
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return counts


class Replayed:
    """An iterator of any class whose items can be read again as long as no step `has_run`.

    `again` returns a reader from the beginning, and ends the reader before, which another thread may hold.
    """

    def __init__(self, source: Any, has_run: Runs) -> None:
        self._source, self._has_run = source, has_run
        self._generators = Generators(False)
        self._kept: list[tuple[Any, dict[str, Any]]] = []
        """The items read so far, each with the states, after it, of the random generators that it drew from."""
        self._error: Exception | None = None
        self._iterated: Replayed | None = None
        self._lock, self.reader = threading.Lock(), object()

    def again(self) -> Reader:
        """A reader of all items."""
        with self._lock:
            self.reader = object()
        if self._iterated not in (None, self):
            self._iterated.again()
        return Reader(self, self.reader)

    def item(self, reader: object, position: int) -> Any:
        """The item of a position for a reader; StopIteration at the end, and for an earlier reader."""
        with self._lock:
            if self.reader is not reader:
                raise StopIteration
            if position < len(self._kept):
                item, drawn = self._kept[position]
                self._generators.restore(drawn)
                return item
            if self._error is not None:
                raise self._error
            if self._has_run():
                self._kept.clear()
                return next(self._source)
            before = self._generators.states()
            try:
                item = next(self._source)
            except StopIteration:
                raise
            except Exception as error:
                self._error = None if self._has_run() else error
                raise
            if self._has_run():
                self._kept.clear()
            else:
                self._kept.append((item, self._generators.changes(before)))
            return item

    def iterated(self, reader: object) -> Any:
        """Reader of the source's `iter`, which is called once; None where it returns the source itself."""
        if self._iterated is None:
            made = iter(self._source)
            self._iterated = self if made is self._source else Replayed(made, self._has_run)
        return None if self._iterated is self else Reader(self._iterated, self._iterated.reader)


class Reader(Iterator[Any]):
    """One reader of a replayed iterator."""

    def __init__(self, replayed: Replayed, reader: object) -> None:
        self.replayed, self._reader = replayed, reader
        self._position = 0

    def __iter__(self) -> Iterator[Any]:
        other = self.replayed.iterated(self._reader)
        return self if other is None else other

    def __next__(self) -> Any:
        item = self.replayed.item(self._reader, self._position)
        self._position += 1
        return item

    def generator(self) -> Iterator[Any]:
        """The items by a generator, the type that Keras 3 asks for."""
        generator = self._items()
        _generators[generator] = self.replayed
        return generator

    def _items(self) -> Iterator[Any]:
        yield from self


def _items(taken: list[BatchSource], rest: Iterator[Any]) -> Iterator[Any]:
    """The batches that have been taken, then those that are left, nested as the data are."""
    for batches in taken:
        yield from (batch_of(batches, index) for index in range(batches.steps))
        if batches.error is not None:
            raise batches.error
    yield from rest


class ReopenedDataset(UnaryUnchangedStructureDataset):
    """A tf.data set with `opened` open passes: its next iterators read `items`, later ones open a new pass.

    `map`, by which Keras adds class weights, and `prefetch` return such a set, too; `items` are those after them.
    """

    def __init__(self, dataset: tf.data.Dataset, items: Iterator[Any], opened: int) -> None:
        self._original, self._items, self._opened = dataset, items, opened
        super().__init__(dataset, dataset._variant_tensor)

    def __iter__(self) -> Any:
        if self._opened == 0 or not all(isinstance(spec, REOPENED) for spec in tf.nest.flatten(self.element_spec)):
            return iter(self._original)
        self._opened -= 1
        return iter(tf.data.Dataset.from_generator(lambda: self._items, output_signature=self.element_spec))

    def map(self, *arguments: Any, **named: Any) -> ReopenedDataset:
        """Maps the elements as any tf.data set does."""
        return ReopenedDataset(self._original.map(*arguments, **named), self._items, self._opened)

    def prefetch(self, *arguments: Any, **named: Any) -> ReopenedDataset:
        """Prefetches elements as any tf.data set does."""
        return ReopenedDataset(self._original.prefetch(*arguments, **named), self._items, self._opened)


_generators: weakref.WeakKeyDictionary[Any, Replayed] = weakref.WeakKeyDictionary()


def replayed_of(data: Any) -> Replayed | None:
    """The replayed iterator that a reader, or a generator of one, reads; None for other data."""
    if isinstance(data, Reader):
        return data.replayed
    try:
        return _generators.get(data)
    except TypeError:  # without a weak reference or a hash
        return None


attempt: ThreadValue[Attempt | None] = ThreadValue(None)
"""The call under way in this thread."""


def note_taken(taken: list[BatchSource]) -> None:
    """Notes the batches that an execution has taken, for a call that may begin again."""
    if attempt.value is not None:
        attempt.value.note_taken(taken)


def install(callback_list: type) -> None:
    """Wraps the methods of a framework's list of callbacks."""
    wrap(callback_list, "__init__", _make_list)
    for name in EVENTS:
        wrap(callback_list, name, functools.partial(_event, name))


def _make_list(make: Original, callback_list: Any, *arguments: Any, **named: Any) -> None:
    make(callback_list, *arguments, **named)
    if attempt.value is not None and attempt.value.callback_list is None:
        attempt.value.callback_list = callback_list


def _event(name: str, original: Original, callback_list: Any, *arguments: Any, **named: Any) -> None:
    call = functools.partial(original, callback_list, *arguments, **named)
    if attempt.value is None:
        call()
    else:
        attempt.value.event(call, name)


def install_data(adapter: type) -> None:
    """Wraps the methods that begin and end an epoch of Keras 3's PyDatasets."""
    for name in ("on_epoch_begin", "on_epoch_end"):
        wrap(adapter, name, functools.partial(_data_event, name))


def _data_event(name: str, original: Original, adapter: Any) -> None:
    if attempt.value is None:
        original(adapter)
    else:
        attempt.value.data_event(functools.partial(original, adapter), name, adapter)
