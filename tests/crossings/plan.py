"""Plans: the words of one line, as `keras scope sequential arrays sgd fit fit=3`, from which a source is made.

The first words are the framework and the modes, the others features, each with an option after "=". A feature writes
into a draft of the source. A draft without features stands for the first feature of each group.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FRAMEWORKS = ("keras", "tf_keras")
GROUPS = ("device", "model", "policy", "size", "frozen", "loss", "metrics", "data", "weights", "optimizer", "slots",
          "schedule", "compile", "epochs", "validation", "callback", "before", "action")  # fmt: skip
"""Groups in the order in which features write."""
REPEATED = ("device", "slots", "metrics", "compile", "epochs", "callback", "before", "action")
"""The groups of which a program may have several features; actions keep their order and may come twice."""
ROOMS = ("devices", "models", "other_layers", "own_steps", "data", "compiling", "callbacks", "actions")
SEED = 17
MICRO = "micro-batches"
"""The tag of programs whose batches are parts of an update."""
THREADS = "in threads"
"""The label of calls in two threads."""
FIT = "model.fit(**given('steps_per_epoch'), **fit(), callbacks=callbacks())"


class Misfit(Exception):
    """Raised for a feature that does not go together with the features before it."""


@dataclass
class Draft:
    """The parts of a program's source while features write it."""

    keras: str
    device: dict[str, str] = field(default_factory=dict)
    samples: int = 24
    batch: int = 4
    inputs: list[str] = field(default_factory=lambda: ["rng.normal(size=(n, 4)).astype(f)"])
    targets: list[str] = field(default_factory=lambda: ["rng.normal(size=(n, 1)).astype(f)"])
    input_names: list[str] = field(default_factory=list)
    target_names: list[str] = field(default_factory=list)
    kind: str = "dense"
    classes: list[str] = field(default_factory=list)
    make: str = ""
    made: list[str] = field(default_factory=list)
    optimizer: str = "K.optimizers.SGD"
    rate: str = "0.05"
    slots: dict[str, str] = field(default_factory=dict)
    wrapper: str = "{}"
    compile: dict[str, str] = field(default_factory=lambda: {"loss": "'mse'"})
    fit: dict[str, str] = field(default_factory=lambda: {"epochs": "2", "shuffle": "False"})
    given: str = "dict(x=x, y=y, batch_size=b)"
    has_length: bool = True
    is_arrays: bool = True
    callbacks: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)

    @property
    def is_keras3(self) -> bool:
        return self.keras == "keras"

    @property
    def predicted(self) -> str:
        """Arguments of predict."""
        return "x, batch_size=b" if self.is_arrays else "**given()"

    def need(self, condition: bool) -> None:
        """Raises Misfit unless the condition holds."""
        if not condition:
            raise Misfit

    def add_class(self, source: str) -> None:
        """Adds helpers to the source, once."""
        source = textwrap.dedent(source).strip()
        if source not in self.classes:
            self.classes.append(source)


@dataclass(frozen=True)
class Feature:
    """A part of programs: its name and options, and the function that writes it into a draft."""

    name: str
    group: str
    write: Callable[[Draft, str], None]
    options: tuple[str, ...]
    frameworks: tuple[str, ...]
    weight: float

    def option(self, word: str) -> str:
        """The option that a word of a plan names, in which blanks are underscores; the first for none."""
        return next((each for each in self.options if each.replace(" ", "_") == word), word) or self.options[0]


FEATURES: dict[str, Feature] = {}


def feature(
    group: str, *options: str, name: str = "", keras: tuple[str, ...] = FRAMEWORKS, weight: float = 1.0
) -> Callable[[Any], Any]:
    """Registers a function (draft, option) as a feature that has its name; the first option is the simplest."""

    def register(write: Callable[[Draft, str], None]) -> Callable[[Draft, str], None]:
        made = Feature(name or write.__name__, group, write, options or ("",), keras, weight)
        assert made.name not in FEATURES and group in GROUPS, made
        FEATURES[made.name] = made
        return write

    return register


def all_features() -> dict[str, Feature]:
    """Every feature by its name."""
    for room in ROOMS:
        importlib.import_module(f"tests.crossings.{room}")
    return FEATURES


@dataclass(frozen=True)
class Plan:
    """A program: its framework, the modes it is compared in, and its features."""

    keras: str
    modes: tuple[str, ...]
    features: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.keras, ",".join(self.modes), *self.features))

    @classmethod
    def read(cls, line: str) -> Plan:
        """The plan that a line describes."""
        keras, modes, *features = line.split()
        return cls(keras, tuple(modes.split(",")), tuple(features))

    @property
    def names(self) -> list[str]:
        """Features without options; modes as `mode:scope`, the framework as `keras` or `tf_keras`."""
        return [self.keras, *(f"mode:{mode}" for mode in self.modes), *(f.partition("=")[0] for f in self.features)]

    def has(self, names: frozenset[str]) -> bool:
        """Whether all of these, with or without options, are in the plan; the defaults of its groups count."""
        words = {name: option for name, _, option in (word.partition("=") for word in self.features)}
        groups = {all_features()[name].group for name in words}
        words |= {each.name: "" for group in GROUPS if group not in groups and (each := first_of(group))}
        full = {f"{name}={all_features()[name].option(option)}".replace(" ", "_") for name, option in words.items()}
        return names <= {*self.names, *words, *full, *self.features}

    def draft(self) -> Draft:
        """The written draft. Raises Misfit where features do not go together."""
        known, draft = all_features(), Draft(self.keras)
        parts = [word.partition("=") for word in self.features]
        for group in GROUPS:
            of_group = [(known[name], option) for name, _, option in parts if known[name].group == group]
            if group not in REPEATED:
                draft.need(len(of_group) < 2)
                if not of_group and (default := first_of(group)) is not None:
                    of_group = [(default, "")]
            for each, option in of_group:
                draft.need(self.keras in each.frameworks)
                each.write(draft, each.option(option))
        draft.need("stages" not in draft.device or "unbuilt" not in draft.tags)
        if MICRO in draft.tags:
            draft.need(self.modes == ("scope",) and (draft.is_keras3 or "unknown length" not in draft.tags))
        return draft

    def source(self) -> str:
        """The function `program(K, note, f)`."""
        return source_of(self.draft())


def first_of(group: str) -> Feature | None:
    """The default feature of a group, for programs that name none; None for a group that may be empty."""
    if group not in ("model", "loss", "data", "optimizer"):
        return None
    return next(each for each in all_features().values() if each.group == group)


def source_of(draft: Draft) -> str:
    """The source of a written draft."""
    optimizer = _named({"learning_rate": draft.rate} | draft.slots)
    made = draft.wrapper.format(f"{draft.optimizer}({optimizer})")
    if draft.device:
        draft.compile.setdefault("steps_per_execution", "note.steps(1)")
    compiled, fit = _named(draft.compile), _named(draft.fit)
    actions = draft.actions or [action("fit", FIT)]
    lines = [
        f"rng = np.random.default_rng({SEED})",
        "L, N = K.layers, numbers(K)",
        f"n, m = {draft.samples}, {draft.batch}",
        *([f"n = note.device(n, m, {_named(draft.device)})"] if draft.device else []),
        *(f"x = {_structure(draft.inputs, draft.input_names)}", f"y = {_structure(draft.targets, draft.target_names)}"),
        "x, y, n, b, u = note.rows(x, y)" if draft.device else "b = u = m",
        *draft.classes,
        f"def make():\n{textwrap.indent(textwrap.dedent(draft.make).strip(), '    ')}",
        f"def compiled(model):\n    model.compile({made}, {compiled})\n    return note.on_device(model)",
        f"def given(steps='steps'):\n    return {draft.given}",
        f"def fit():\n    return dict({fit}, verbose=0)",
        f"def callbacks():\n    return [{', '.join(draft.callbacks)}]",
        "with note.scope():",
        *(f"    {line}" for line in ("model = make()", *draft.made, "compiled(model)")),
        *draft.before,
        "model = note.owned(model)",
        *actions,
        "note.state('end', model)",
    ]
    return "def program(K, note, f):\n" + textwrap.indent("\n".join(lines), "    ")


def action(label: str, expression: str) -> str:
    """A line that notes the result of an expression."""
    return f"note({label!r}, lambda: {expression})"


def _named(arguments: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())


def _structure(parts: list[str], names: list[str]) -> str:
    if not names:
        return parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    return "{" + ", ".join(f"{name!r}: {part}" for name, part in zip(names, parts, strict=True)) + "}"
