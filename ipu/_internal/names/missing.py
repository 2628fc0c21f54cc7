"""Messages for names that do not exist: the name as the user typed it, and its replacement."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import FrameType

from ipu._internal.names.documented import NOT_HERE
from ipu._internal.names.errors import MissingImport, MissingName
from ipu._internal.names.of_estimators import OF_ESTIMATORS
from ipu._internal.names.other_releases import OF_GRAPHCORE, OF_HOROVOD, OF_PLUGIN, OF_TENSORFLOW_1, OTHER_RELEASES
from ipu._internal.names.typed import typed_name

KERAS = {
    "keras_ext.names.keras3": "keras.ipu",
    "keras_ext.names.tf_keras": "tf_keras.ipu",
    "keras_ext.names.addons.keras": "ipu_tensorflow_addons.keras",
    "keras_ext": "keras.ipu",
}
SHOWN = {
    **KERAS,
    "ipu._internal.estimators.tf_estimator": "tf.estimator",
    "ipu._internal.plugin": "tensorflow.compiler.plugin",
    "ipu._internal.popdist": "popdist",
}
"""Documented names of packages whose own names are not documented."""
IN_TABLES = {
    "ipu.keras": ("tensorflow.keras.ipu", "tf.keras.ipu", *KERAS.values(), *KERAS),
    "tf.estimator": (
        *("tensorflow.estimator", "tensorflow.python.estimator", "ipu._internal.estimators.tf_estimator"),
        *("tensorflow.compat.v1.estimator", "tf.compat.v1.estimator"),
    ),
}
"""Names in the tables of missing names, and other paths to them."""
TABLES = (
    (NOT_HERE, "is not here yet"),
    (OTHER_RELEASES, "exists in other releases alone"),
    (OF_PLUGIN, "exists in other releases alone"),
    (OF_TENSORFLOW_1, "TensorFlow 1 alone has"),
    (OF_GRAPHCORE, "is of Graphcore's own packages"),
    (OF_HOROVOD, "is of Horovod, which does not know these IPUs"),
    (OF_ESTIMATORS, "is for TensorFlow's own estimators"),
)


def missing_name(module: str, names: Iterable[str], name: str, frame: FrameType) -> MissingName | MissingImport:
    """The error for `name`, which `module` does not have, in the statement that `frame` executes."""
    shown = next((shown + module[len(real) :] for real, shown in SHOWN.items() if module.startswith(real)), module)
    typed, imports = typed_name(frame)
    parts = typed.split(".") if typed is not None else []
    if typed is None or name not in parts:
        typed, parts = f"{shown}.{name}", [name]
    behind = parts[parts.index(name) + 1 :] if name in parts else []
    documented = documented_name(".".join([module, name, *behind]))
    error = (MissingImport if imports else MissingName)(message(typed, documented, shown, names, name))
    error.name = shown if imports else name
    return error


def documented_name(name: str) -> str:
    """The key of `name` in the tables of missing names, for any path to it."""
    for documented, paths in IN_TABLES.items():
        for path in paths:
            if name == path or name.startswith(f"{path}."):
                name = documented + name[len(path) :]
    for real in ("ipu._internal.plugin", "ipu._internal.popdist"):
        name = name.replace(real, SHOWN[real], 1) if f"{name}.".startswith(f"{real}.") else name
    return name.removeprefix("tensorflow.python.").replace("ipu.ops.", "ipu.", 1)


def message(typed: str, documented: str, module: str = "", names: Iterable[str] = (), name: str = "") -> str:
    """The error message for a name that was `typed`, in the tables under `documented`."""
    is_typed = documented_name(typed) == documented
    where = typed if is_typed else f"{typed} ({documented})"
    parts = documented.split(".")
    for end in range(len(parts), 0, -1):
        known = ".".join(parts[:end])
        for table, why in TABLES:
            if known in table:
                return f"Expected a name that exists here. Received: {where}, which {why}. Use {table[known]}."
    nearest = difflib.get_close_matches(name, list(names), 1)
    hint = f" Nearest: {module}.{nearest[0]}." if nearest else f" dir({module}) lists them." if module else ""
    return f"Expected a documented name. Received: {where}, which does not exist.{hint}"
