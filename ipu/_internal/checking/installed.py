"""Look-up of names in the installed packages, and of other packages that have a missing name."""

from __future__ import annotations

import builtins
import difflib
import functools
import os
import warnings
from collections.abc import Iterable
from enum import EnumMeta
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from engine.errors import IPUError
from ipu._internal.checking.finding import Level
from ipu._internal.checking.old_names import MODULES, REFUSED
from ipu._internal.names.documented import NOT_HERE
from ipu._internal.names.missing import documented_name

ROOTS = frozenset(
    {"collections", "ipu", "ipu_tensorflow_addons", "keras", "numpy", "popdist", "tensorflow", "tf_keras"}
)
LEGACY_KERAS = "Keras 3 has it no longer. Set the environment variable TF_USE_LEGACY_KERAS=1, and tf.keras is tf_keras."


@functools.cache
def look_up(name: str) -> tuple[Any, str, Exception | None]:
    """The object of that name, "" and None; or the last module on the way to it, the name that fails and its error.

    Attributes that a class lacks count as found, with None for the object: they may exist on instances alone.
    """
    parts = name.split(".")
    found: Any = import_module(parts[0])
    for number, part in enumerate(parts[1:], 1):
        if not isinstance(found, ModuleType | EnumMeta):
            return _attribute(found, parts[number:]), "", None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(found, part)
        except Exception as error:
            try:
                found = import_module(".".join(parts[: number + 1]))
            except Exception:
                return found, ".".join(parts[: number + 1]), error
    return found, "", None


def _attribute(found: Any, names: Iterable[str]) -> Any:
    """An attribute of a class, or of an attribute of it; None for other objects, whose attributes may run code."""
    for name in names:
        found = getattr(found, name, None) if isinstance(found, type) else None
    return found


def legacy_keras() -> bool:
    """Whether tf.keras is tf_keras, by the variable that TensorFlow reads."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")


def exists(name: str) -> bool:
    """Whether an installed package has the name."""
    return not look_up(name)[1]


def is_checked(name: str) -> bool:
    """Whether the name is of a package that is looked into, or of one in the table of old modules."""
    return name.partition(".")[0] in ROOTS or old_module(name) is not None


def is_ours(name: str) -> bool:
    """Whether the name is of this API."""
    return "ipu" in name.split(".")[:4] or name.startswith(("ipu_tensorflow_addons", "popdist"))


def old_module(name: str) -> str | None:
    """The entry of MODULES for a name that is not installed."""
    parts = name.split(".")
    known = next((key for end in range(len(parts), 0, -1) if (key := ".".join(parts[:end])) in MODULES), None)
    return known if known is None or parts[0] == "tensorflow" or find_spec(parts[0]) is None else None


def missing(name: str) -> tuple[Level, str, str] | None:
    """Level, shortened name and advice for a name that does not exist or that raises; None for any other."""
    old = old_module(name)
    if old is not None:
        level, advice = MODULES[old]
        return level, short(old), advice
    if (refused := is_refused_call(name)) is not None:
        return "refused", short(name), REFUSED[refused]
    parent, gone, error = look_up(name)
    if not gone:
        is_removed = getattr(parent, "__module__", None) == "keras_ext.ported"
        return ("change", short(name), parent.__doc__) if is_removed else None
    if isinstance(error, IPUError):
        known = documented_name(gone)
        is_refused = any(f"{known}.".startswith(f"{each}.") for each in NOT_HERE)
        return "refused" if is_refused else "change", short(gone), _second_half(str(error))
    return "change", short(gone), _elsewhere(name, gone, parent)


def raises_when_called(name: str) -> bool:
    """Whether the name exists, may be imported, and raises an error at each call."""
    if old_module(name) is not None:
        return False
    return is_refused_call(name) is not None or getattr(look_up(name)[0], "__module__", None) == "keras_ext.ported"


def not_an_attribute(name: str) -> tuple[Level, str, str] | None:
    """The result of `missing` for a name taken by attributes of `tensorflow`, which hides some of its modules."""
    root, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    if root != "tensorflow" or hasattr(import_module(root), first):
        return None
    return "change", f"tf.{first}", f"The module tensorflow has no such attribute. Import the names of {root}.{first}."


def is_refused_call(name: str) -> str | None:
    """The entry of REFUSED for a name that may be imported, and is refused when it is called."""
    return next((key for key in REFUSED if name.endswith(f".{key}")), None)


def short(name: str) -> str:
    """The name as programs abbreviate it."""
    for long, usual in (
        ("tensorflow.python.ipu", "ipu"),
        ("tensorflow.compat.v1", "tf.compat.v1"),
        ("tensorflow", "tf"),
    ):
        if name == long or name.startswith(f"{long}."):
            return usual + name[len(long) :]
    return name


def _elsewhere(name: str, gone: str, parent: Any) -> str:
    """Advice where else the name is: in TensorFlow 1's names, in the Keras before 3, or under a similar name."""
    below = name.partition("keras.")[2]
    if name.startswith("tensorflow.python.keras.") and exists(f"tf_keras.{below}"):
        return f"TensorFlow has kept a part of its old Keras alone. Write tf_keras.{below}."
    if "keras" in name.split(".")[:4] and not legacy_keras() and exists(f"tf_keras.{below}"):
        return LEGACY_KERAS
    root, _, rest = name.partition(".")
    if root == "numpy" and hasattr(builtins, rest):
        return f"NumPy has it no longer. Write {rest}."
    if root == "collections" and exists(f"collections.abc.{rest}"):
        return f"Python has it no longer. Write collections.abc.{rest}."
    if root == "tensorflow" and not rest.startswith(("compat.", "python.", "keras.")):
        _, gone_there, error = look_up(f"tensorflow.compat.v1.{rest}")
        if not gone_there:
            return "It is a name of TensorFlow 1. Write `import tensorflow.compat.v1 as tf`."
        if "Keras 3" in str(error):
            return f"It is a name of TensorFlow 1. Write `import tensorflow.compat.v1 as tf`. {LEGACY_KERAS}"
    if "Keras 3" in str(look_up(name)[2]):
        return LEGACY_KERAS
    return f"It does not exist.{nearest(gone.rpartition('.')[2], dir(parent))}"


def nearest(name: str, names: Iterable[str]) -> str:
    """A sentence with the most similar one of `names`; "" without any."""
    found = difflib.get_close_matches(name, list(names), 1)
    return f" Nearest: {found[0]}." if found else ""


def _second_half(message: str) -> str:
    """The part of an error's message after the received value."""
    rest = message.partition("Received: ")[2].partition(", which ")[2]
    return f"It {rest}" if rest else message
