"""Puts the documented methods on models created in an IPUStrategy's scope, and on no others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MethodType
from typing import Any, ClassVar

from engine.errors import ConfigurationError
from keras_ext.frameworks.common import serves
from keras_ext.types import KerasModel


class ExtensionKind(type):
    """Makes models instances of their extension class and of its bases, for isinstance."""

    def __instancecheck__(cls, instance: object) -> bool:
        extensions = (extension_of(instance) for extension_of in _served)
        return any(extension is not None and issubclass(extension, cls) for extension in extensions)


class Extension(metaclass=ExtensionKind):
    """Base of the classes that inject methods into models: every public one of those given to `install`.

    Such a method is called with the model as `self`. Options are stored in `options_of(model)` under their names in
    the model's config.
    """

    SAVED: ClassVar[dict[str, Any]] = {}
    """Options that the model's config keeps, with their defaults; values are JSON-serialisable."""

    COMPUTED: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    """Functions of the model that compute options of its config which are not set; they return None for none."""

    UNSAVED: ClassVar[tuple[str, ...]] = ()
    """Options that saving leaves out, with a log message."""


_served: list[Callable[[Any], type[Extension] | None]] = []
"""Functions that return the extension of a model, one for each framework."""


def options_of(model: KerasModel) -> dict[str, Any]:
    """The model's options that have been set; not an attribute that Keras tracks."""
    return vars(model).setdefault("_ipu_options", {})


def option(model: KerasModel, name: str, default: Any = None) -> Any:
    """One of the model's options; `default` where it is not set."""
    return vars(model).get("_ipu_options", {}).get(name, default)


def check_names(of: str, received: Mapping[str, Any], allowed: Collection[str], filled_in: Mapping[str, str]) -> None:
    """Raises ConfigurationError for names among the arguments `of` a function that it lacks, or that Keras sets itself.

    `filled_in` has the latter, with what to do in their place.
    """
    for name, value in received.items():
        if name in filled_in:
            raise ConfigurationError(
                f"Expected arguments of {of} other than {name!r}, which Keras sets itself. Received: {name}={value!r}. "
                f"Leave it out: {filled_in[name]}."
            )
        if name not in allowed:
            raise ConfigurationError(
                f"Expected arguments of {of}: {', '.join(sorted(allowed))}. Received: {name!r}. Remove it."
            )


def public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The methods that an extension class injects, by name."""
    members = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: member for name, member in members.items() if callable(member)}


class InjectedMethod:
    """A method that a model has if it was created in the scope of a strategy, found by the model's kind."""

    def __init__(self, name: str, extension_of: Callable[[Any], type[Extension] | None]) -> None:
        self._name = name
        self._extension_of = extension_of

    def __get__(self, model: KerasModel, owner: type | None = None) -> Any:
        extension = None if model is None else self._extension_of(model)
        function = getattr(extension, self._name, None)
        if function is None:
            message = f"{getattr(owner, '__name__', owner)!r} object has no attribute {self._name!r}."
            if model is not None:
                message += (
                    " Expected a model created inside an IPUStrategy's scope. Received: one that was not, which has "
                    "none of the methods for the IPU. Create it in `with strategy.scope():`."
                )
            raise AttributeError(message, name=self._name, obj=model)
        return MethodType(function, model)


def install(
    model_class: type, kinds: Mapping[type, type[Extension]], strategy_attribute: str
) -> Callable[[Any], type[Extension] | None]:
    """Injects the methods into one framework's models; returns the function from a model to its extension.

    That gives None for a model created outside a strategy's scope. `kinds` has the extension of each class of models,
    subclasses first; `strategy_attribute` is the attribute in which a model keeps the strategy it was created under.
    """

    def extension_of(model: KerasModel) -> type[Extension] | None:
        if not serves(getattr(model, strategy_attribute, None)):
            return None
        return next((extension for kind, extension in kinds.items() if isinstance(model, kind)), None)

    for name in sorted({name for extension in kinds.values() for name in public_methods(extension)}):
        setattr(model_class, name, InjectedMethod(name, extension_of))
    _served.append(extension_of)
    return extension_of
