"""Python's state while the trace reads it is the state with which plain Keras runs a batch."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from ipu import accelerate
from ipu.ipu_strategy import IPUStrategy
from keras_ext import origins
from keras_ext.python_state import PythonState
from tests.keras.helpers import Kit, assert_close

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(38, 4)).astype(np.float32)
Y = RANDOM.normal(size=(38, 1)).astype(np.float32)
FACTORS = {"of all": 1.0}
SCOPES: dict[str, Callable[[], Any]] = {"plain": nullcontext, "ipu": lambda: IPUStrategy().scope(), "acc": accelerate}


def model_of(kit: Kit, within: str = "") -> Any:
    layers, factors = kit.keras.layers, [1.0]

    class Scaled(layers.Layer):  # type: ignore[misc, name-defined]
        of_class = 1.0

        def __init__(self) -> None:
            super().__init__(name="scaled")
            self.own, self.listed, self.named, self.array = 1.0, [1.0], {"one": 1.0}, np.ones(1, np.float32)

        def call(self, inputs: Any) -> Any:
            of_self = self.own * self.of_class * self.listed[0] * self.named["one"] * self.array
            return inputs * of_self * FACTORS["of all"] * factors[0]

    regularizer = kit.keras.regularizers.L2(0.01)
    parts = [layers.Input((4,)), layers.Dense(3, name="first", kernel_regularizer=regularizer), Scaled()]
    inner = kit.keras.Sequential([layers.Input((3,)), layers.Dense(2)], name="inner")
    parts += {"inner": [inner], "norm": [layers.BatchNormalization(name="norm")], "": []}[within]
    return kit.keras.Sequential([*parts, layers.Dense(1, name="last")])


def fit(model: Any, rows: int, size: int = 16, **arguments: Any) -> list[Any]:
    arguments = {"batch_size": size, "shuffle": False, "verbose": 0, **arguments}
    return [model.fit(X[:rows], Y[:rows], **arguments).history["loss"]]


def closed_over(model: Any) -> list[float]:
    call = type(model.get_layer("scaled")).call
    return call.__closure__[call.__code__.co_freevars.index("factors")].cell_contents


CHANGES: dict[str, Callable[[Kit, Any], Any]] = {
    "trainable": lambda kit, model: setattr(model.get_layer("last"), "trainable", False),
    "trainable, inner": lambda kit, model: setattr(model.get_layer("inner"), "trainable", False),
    "trainable, norm": lambda kit, model: setattr(model.get_layer("norm"), "trainable", False),
    "attribute of a layer": lambda kit, model: setattr(model.get_layer("scaled"), "own", 0.5),
    "attribute of a class": lambda kit, model: setattr(type(model.get_layer("scaled")), "of_class", 0.5),
    "method of a class": lambda kit, model: setattr(type(model.get_layer("scaled")), "call", lambda self, x: 2 * x),
    "list": lambda kit, model: model.get_layer("scaled").listed.__setitem__(0, 0.5),
    "dictionary": lambda kit, model: model.get_layer("scaled").named.update({"one": 0.5}),
    "array": lambda kit, model: model.get_layer("scaled").array.fill(0.5),
    "global": lambda kit, model: FACTORS.update({"of all": 0.5}),
    "closure": lambda kit, model: closed_over(model).__setitem__(0, 0.5),
    "momentum of norm": lambda kit, model: setattr(model.get_layer("norm"), "momentum", 0.1),
    "activation": lambda kit, model: setattr(model.get_layer("first"), "activation", kit.keras.activations.relu),
    "regularizer": lambda kit, model: setattr(model.get_layer("first").kernel_regularizer, "l2", 3.0),
    "momentum of an optimizer": lambda kit, model: setattr(model.optimizer, "momentum", 0.1),
    "learning rate": lambda kit, model: setattr(model.optimizer, "learning_rate", 0.001),
    "clipping": lambda kit, model: setattr(model.optimizer, "clipnorm", 0.01),
}
ROWS = [(32, 38, 32), (38, 33), (38, 9, 38), (16, 33)]


def program(kit: Kit, change: str, use: Callable[[Any, Callable[[], Any]], list[Any]], scope: str) -> list[Any]:
    kit.keras.utils.set_random_seed(1)
    with SCOPES[scope]():
        model = model_of(kit, next((each for each in ("inner", "norm") if each in change), ""))
        model.compile(kit.keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    try:
        return [use(model, lambda: CHANGES[change](kit, model)), model.get_weights()]
    finally:
        FACTORS["of all"] = 1.0


def assert_as_keras(kit: Kit, change: str, use: Callable[[Any, Callable[[], Any]], list[Any]], scope: str) -> None:
    assert_close(program(kit, change, use, scope), program(kit, change, use, "plain"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("scope", ["ipu", "acc"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("change", CHANGES)
def test_changes_between_fits(kit: Kit, change: str, rows: tuple[int, ...], scope: str) -> None:
    def use(model: Any, make: Callable[[], Any]) -> list[Any]:
        before = fit(model, rows[0])
        make()
        return before + [loss for count in rows[1:] for loss in fit(model, count)]

    assert_as_keras(kit, change, use, scope)


@pytest.mark.sample(2)
@pytest.mark.parametrize("scope", ["ipu", "acc"])
@pytest.mark.parametrize("method", ["train_on_batch", "evaluate", "predict", "predict_on_batch", "during fit"])
def test_changes_between_other_methods(kit: Kit, method: str, scope: str) -> None:
    def run(model: Any, rows: int) -> Any:
        data = (X[:rows],) if method.startswith("predict") else (X[:rows], Y[:rows])
        sizes = {} if method.endswith("on_batch") else {"batch_size": 16, "verbose": 0}
        return getattr(model, method)(*data, **sizes)

    def use(model: Any, make: Callable[[], Any]) -> list[Any]:
        if method == "during fit":
            callback = kit.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: make())
            return fit(model, 38, epochs=2, callbacks=[callback])
        before = [run(model, rows) for rows in (38, 32)]
        make()
        return before + [run(model, rows) for rows in (33, 7, 38, 6)]

    assert_as_keras(kit, "activation", use, scope)


def test_a_program_is_kept_where_keras_traces_the_same_again(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = model_of(kit)
    model.compile("sgd", "mse")
    fit(model, 32)
    before = model.train_function.latest_program()
    fit(model, 38)
    programs = model.train_function._programs._programs
    assert len(programs) == 3 and len(set(map(id, programs.values()))) == 2 and before in programs.values()


class Pair(NamedTuple):
    """Two layers, as programs hold them."""

    first: Any
    second: Any


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "list": list,
    "dictionary": lambda layers: dict(enumerate(layers)),
    "ordered dictionary": lambda layers: collections.OrderedDict(enumerate(layers)),
    "named tuple": lambda layers: Pair(*layers),
    "nested": lambda layers: [(layers[0],), {"last": (layers[1], 1.0)}],
    "deque": collections.deque,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("scope", ["ipu", "acc"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_layers_in_containers(kit: Kit, container: str, scope: str) -> None:
    keras = kit.keras

    class Holding(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.own = (keras.layers.Dense(3), keras.layers.Dense(1))
            self.held = CONTAINERS[container](self.own)

        def call(self, inputs: Any) -> Any:
            return self.own[1](self.own[0](inputs)) * float(len(self.held))

    def use(scope: str) -> Any:
        keras.utils.set_random_seed(1)
        with SCOPES[scope]():
            model = Holding()
            model.compile(keras.optimizers.SGD(0.05), "mse")
        return [fit(model, 38), fit(model, 32), model.get_weights()]

    assert_close(use(scope), use("plain"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("replaced", ["optimizer", "train_step"])
def test_parts_are_replaced_as_in_keras(kit: Kit, replaced: str) -> None:
    def use(scope: str) -> Any:
        kit.keras.utils.set_random_seed(1)
        with SCOPES[scope]():
            model = model_of(kit)
            model.compile(kit.keras.optimizers.SGD(0.05), "mse")
        before = fit(model, 38)
        if replaced == "optimizer":
            model.optimizer = kit.keras.optimizers.SGD(0.5)
            model.optimizer.build(model.trainable_variables)
        else:
            step = model.train_step
            model.train_step = lambda data: {**step(data), "more": 1.0}
        return [before, fit(model, 38), fit(model, 33), model.get_weights()]

    assert_close(use("ipu"), use("plain"))


SOURCE = """
class Scales(keras.Model):
    def __init__(self):
        super().__init__()
        self.factor, self.head = 1.0, keras.layers.Dense(1)

    def call(self, inputs):
        return self.head(inputs) * self.factor
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("scope", ["ipu", "acc"])
@pytest.mark.parametrize("module", ["", "token", "of the program"])
@pytest.mark.parametrize("change", ["factor", "optimizer"])
def test_classes_of_any_module_are_the_program_s(
    kit: Kit, change: str, module: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"keras": kit.keras, **({"__name__": module} if module else {})}
    exec(SOURCE, names)
    if module:  # a file of the program's own, which may have the name of one of Python's
        made = ModuleType(module)
        made.__file__ = f"/somewhere/{module}.py"
        monkeypatch.setitem(sys.modules, module, made)
    origins._package.cache_clear()

    def use(scope: str) -> Any:
        kit.keras.utils.set_random_seed(1)
        with SCOPES[scope]():
            model = names["Scales"]()
            model.compile(kit.keras.optimizers.SGD(0.05), "mse")
        before = fit(model, 38)
        if change == "factor":
            model.factor = 3.0
        else:
            model.optimizer = kit.keras.optimizers.SGD(0.5)
        return [before, fit(model, 32), fit(model, 33), model.get_weights()]

    try:
        assert_close(use(scope), use("plain"))
    finally:
        origins._package.cache_clear()


def test_state_is_restored_and_put_back() -> None:
    class Model:
        shared = 1

        def __init__(self) -> None:
            self.number, self.items, self.gone, self.array = 1.0, [1, [2]], "here", np.zeros(2)

    model = Model()
    state = PythonState(model)  # type: ignore[arg-type]
    model.number, model.later, Model.shared = 2.0, "new", 2  # type: ignore[attr-defined]
    model.items[1].append(3)  # type: ignore[attr-defined]
    model.items.insert(0, 0)
    model.array += 1
    del model.gone
    with state.restored():
        assert (model.number, model.items, model.gone, Model.shared) == (1.0, [1, [2]], "here", 1)
        assert not hasattr(model, "later") and not model.array.any()
        model.number = 3.0
    assert (model.number, model.items, Model.shared) == (3.0, [0, 1, [2, 3]], 2)
    assert model.later == "new" and model.array.all() and not hasattr(model, "gone")  # type: ignore[attr-defined]
