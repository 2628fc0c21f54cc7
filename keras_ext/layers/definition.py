"""The base of layers' definitions, and the classes made of them: one for Keras 3, one for tf_keras."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf

from keras_ext.types import Config

if TYPE_CHECKING:
    from keras.layers import Layer
else:
    Layer = object  # the classes have a Keras' own


class Definition(Layer):
    """A layer without its Keras base class. It computes by TensorFlow operations, which both Keras take."""

    framework: ClassVar[Any]
    """The Keras of the class: the module `keras` or `tf_keras`."""
    family: ClassVar[str] = "layers"
    """The module of `framework` that has the base."""
    base: ClassVar[str] = "Layer"
    """The class of `family` to derive from, whose constructor the definition's calls."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Attributes that `get_config` returns, besides the base's; initializers and functions are serialized."""

    @classmethod
    def base_class(cls, framework: Any) -> Any:
        """The class of a Keras to derive from."""
        return getattr(getattr(framework, cls.family), cls.base)

    def get_config(self) -> dict[str, Config]:
        """The arguments to construct the same layer with, JSON-serialisable."""
        initializers = self.framework.initializers
        own = {name: getattr(self, name) for name in self.settings}
        return super().get_config() | {
            name: initializers.serialize(value) if isinstance(value, initializers.Initializer) else value
            for name, value in own.items()
        }


def framework_classes(
    definitions: Mapping[str, type[Definition]], framework: ModuleType, module: str
) -> dict[str, type]:
    """The classes of a Keras by name, registered for deserialization as "ipu>NAME"; `module` is their `__module__`."""
    register = framework.saving.register_keras_serializable("ipu")
    made: dict[type[Definition], type] = {}
    for definition in definitions.values():
        if definition not in made:
            bases = (definition, definition.base_class(framework))
            body = {"__module__": module, "__doc__": definition.__doc__, "framework": framework}
            made[definition] = register(type(definition.__name__, bases, body))
    return {name: made[definition] for name, definition in definitions.items()}


def dtype_or_policy(dtype: object) -> Any:
    """`dtype` in a form that both Keras take: the name of a tf.DType, and anything else as it is."""
    return dtype.name if isinstance(dtype, tf.DType) else dtype
