"""Options in configs: they are saved with the model, restored in a strategy's scope and ignored outside one."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from engine.whole_files import check_space, staged
from ipu._internal.function_code import wraps
from keras_ext.errors import IncompleteConfig
from keras_ext.extension import Extension, options_of
from keras_ext.types import Config, KerasModel
from keras_ext.wrapping import Original, wrap

HDF5_BYTES_OF_A_VARIABLE = 4096
logger = logging.getLogger("ipu")
ExtensionOf = Callable[[Any], type[Extension] | None]
_warned_unsaved: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def saved_names(extension: type[Extension]) -> frozenset[str]:
    """The options that a config keeps."""
    return frozenset(name for base in extension.__mro__ for name in vars(base).get("SAVED", ()))


def unsaved_names(extension: type[Extension]) -> frozenset[str]:
    """The options that no config keeps."""
    return frozenset(name for base in extension.__mro__ for name in vars(base).get("UNSAVED", ()))


def computed_options(extension: type[Extension]) -> list[tuple[str, Callable[[Any], Any]]]:
    """The options that are computed if they are not set, with their names."""
    return [pair for base in extension.__mro__ for pair in vars(base).get("COMPUTED", {}).items()]


class ConfigKeeper:
    """Wraps the methods of one framework that write, read or copy configs of models."""

    def __init__(self, extension_of: ExtensionOf, extensions: list[type[Extension]]) -> None:
        self._extension_of = extension_of
        self._names = frozenset[str]().union(*(saved_names(extension) for extension in extensions))

    def wrap(self, sequential: Any, functional: Any, model: Any, cloning: Any) -> None:
        """Wraps the methods of the framework's classes of models, and the functions of its module `cloning`."""
        for kind in (sequential, functional, model):
            wrap(kind, "get_config", self._get_config)
        for kind in (sequential, model):
            kind.from_config = self.reading(kind.__dict__["from_config"])
        wrap(model, "__init__", self._construct)
        wrap(model, "save", self._save)
        wrap(cloning, "_clone_sequential_model", self._clone)
        wrap(cloning, "_clone_functional_model", self._clone)

    def write_whole(self, *writers: tuple[Any, str]) -> None:
        """Wraps functions that write a model to a path, by module and name: a file is whole or absent."""
        for module, name in writers:
            wrap(module, name, self._write_whole)

    def saved(self, model: KerasModel) -> dict[str, Any]:
        """The model's options that a config keeps, if they are set or computed; {} for a model of no strategy."""
        extension = self._extension_of(model)
        if extension is None:
            return {}
        self._warn_unsaved(model, extension)
        options = {name: value for name, value in options_of(model).items() if name in saved_names(extension)}
        computed = {name: compute(model) for name, compute in computed_options(extension) if name not in options}
        return {**options, **{name: value for name, value in computed.items() if value is not None}}

    def restore(self, model: KerasModel, options: dict[str, Any]) -> None:
        """Sets the options of a config on a model of a strategy."""
        if options and self._extension_of(model) is not None:
            options_of(model).update(options)

    def split(self, config: Config) -> tuple[Any, dict[str, Any]]:
        """A config without options, and the options."""
        if not isinstance(config, dict) or not self._names & config.keys():
            return config, {}
        options = {name: value for name, value in config.items() if name in self._names}
        return {name: value for name, value in config.items() if name not in self._names}, options

    @staticmethod
    def _warn_unsaved(model: KerasModel, extension: type[Extension]) -> None:
        """Logs once for each model which options its config leaves out."""
        warned = _warned_unsaved.setdefault(model, set())
        left_out = sorted(name for name in unsaved_names(extension) - warned if options_of(model).get(name))
        if left_out:
            warned.update(left_out)
            logger.info(
                "The config of model %r leaves out %s, which cannot be serialised: %s. Set them again after loading.",
                model.name,
                ", ".join(left_out),
                "; ".join(f"{name}={options_of(model)[name]!r}" for name in left_out),
            )

    def _get_config(self, get_config: Original, model: KerasModel) -> Any:
        """The config with the options."""
        config, options = get_config(model), self.saved(model)
        return {**config, **options} if options else config

    def reading(self, from_config: classmethod) -> Any:
        """The class method `from_config` for configs with options."""
        function = from_config.__func__

        @wraps(function)
        def from_config_with_options(cls: type, config: Config, *arguments: object, **named: object) -> Any:
            plain, options = self.split(config)
            model = function(cls, plain, *arguments, **named)
            self.restore(model, options)
            return model

        return classmethod(from_config_with_options)

    def _construct(self, init: Original, model: KerasModel, *args: object, **kwargs: object) -> None:
        """Constructs models of classes whose own `from_config` passes all of the config to the constructor."""
        plain, options = self.split(kwargs)
        init(model, *args, **plain)
        self.restore(model, options)

    def _clone(self, clone: Original, model: KerasModel, *arguments: object, **named: object) -> Any:
        copy = clone(model, *arguments, **named)
        self.restore(copy, self.saved(model))
        return copy

    def _save(self, save: Original, model: KerasModel, *arguments: object, **named: object) -> Any:
        """Raises IncompleteConfig for a class whose own `get_config` drops the options."""
        options = self.saved(model)
        missing = sorted(options.keys() - self._config_of(model).keys()) if options else []
        if missing:
            raise IncompleteConfig(
                f"Expected the config of {type(model).__name__} to keep its options: {', '.join(missing)}. "
                "Received: one without. Let get_config of the class begin with config = super().get_config()."
            )
        return save(model, *arguments, **named)

    def _write_whole(self, write: Original, model: KerasModel, filepath: Any, *arguments: Any, **named: Any) -> Any:
        """Replaces a local file or folder once all is written; Keras itself asks where it may not overwrite."""
        overwrites = named.get("overwrite", arguments[0] if arguments else True)
        if self._extension_of(model) is None or not _is_replaced(filepath, overwrites):
            return write(model, filepath, *arguments, **named)
        if str(filepath).endswith((".h5", ".hdf5")):
            # HDF5 ends in a segmentation fault where it cannot close a file on a full disk.
            check_space(Path(filepath).absolute().parent, _bytes_of(model))
        with staged(filepath) as part:
            result = write(model, str(part), *arguments, **named)
            _keep_others(Path(filepath), part)
        return result

    def _config_of(self, model: KerasModel) -> dict[str, Any]:
        try:
            return model.get_config()
        except NotImplementedError:
            # Formats that need a config raise an error themselves; the others keep neither config nor options.
            return self.saved(model)


def _bytes_of(model: Any) -> int:
    """The most bytes that an HDF5 file of a model and its optimizer takes, with some kB for each variable's name."""
    slots = getattr(getattr(model, "optimizer", None), "variables", [])
    weights: list[Any] = []
    with contextlib.suppress(ValueError):  # of tf_keras, for a model without weights so far, which it writes
        weights += model.weights
    variables = [*weights, *(slots() if callable(slots) else slots)]
    sizes = (math.prod(each.shape) * max(tf.as_dtype(each.dtype).size, 1) for each in variables)
    return sum(sizes) + HDF5_BYTES_OF_A_VARIABLE * (len(variables) + 4)


def _is_replaced(filepath: Any, overwrites: Any) -> bool:
    """Whether a file, folder or prefix of files is written beside its place; Keras creates no folder for a file."""
    text = os.fspath(filepath) if isinstance(filepath, str | os.PathLike) else ""
    if not text or "://" in text or text.endswith(os.sep) or not Path(text).absolute().parent.is_dir():
        return False
    return not (overwrites is False and os.path.exists(text))


def _keep_others(former: Path, written: Path) -> None:
    """Copies files that are not Keras' from a former folder into the new one, as Keras writes into existing folders."""
    if not (written.is_dir() and former.is_dir()):
        return
    for each in former.iterdir():
        if not (written / each.name).exists():
            if each.is_dir():
                shutil.copytree(each, written / each.name, symlinks=True)
            else:
                shutil.copy2(each, written / each.name, follow_symlinks=False)
