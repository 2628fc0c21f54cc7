"""Classes of `ipu.keras` that TensorFlow 2.4 no longer has: importable; creating one raises and names a replacement."""

from __future__ import annotations

from typing import NoReturn

from keras_ext.errors import RemovedName

_STAGES = "set_pipeline_stage_assignment()"
REPLACEMENTS = {
    "Model": "tensorflow.keras.Model",
    "IPUModel": "tensorflow.keras.Model",
    "Sequential": "tensorflow.keras.Sequential",
    "IPUSequential": "tensorflow.keras.Sequential",
    "PipelinedModel": f"tensorflow.keras.Sequential and its {_STAGES}",
    "PipelineModel": f"tensorflow.keras.Model, with ipu.keras.PipelineStage or the model's {_STAGES}",
    "PipelineSequential": f"tensorflow.keras.Sequential and its {_STAGES}",
}
"""The replacement of each class."""


class RemovedModel:
    """Base of the removed classes, which old programs may subclass."""

    def __new__(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raises RemovedName, a RuntimeError, which names the replacement of the class and of each argument."""
        name = next(base.__name__ for base in cls.__mro__ if base in REMOVED.values())
        hints = filter(None, (_hint(argument, name.startswith("Pipeline")) for argument in kwargs))
        raise RemovedName(
            f"Expected a model class of Keras. Received: ipu.keras.{name}, which was removed after TensorFlow 2.1. "
            + " ".join([f"Use {REPLACEMENTS[name]} inside an IPUStrategy's scope.", *hints])
        )


def _hint(argument: str, pipelined: bool) -> str | None:
    if argument == "gradient_accumulation_dtype":
        return f"{argument} is gone."
    if argument == "gradient_accumulation_count":
        setter = "set_pipelining_options" if pipelined else "set_gradient_accumulation_options"
        return f"Instead of {argument}, call {setter}(gradient_accumulation_steps_per_replica=...) of the model."
    from keras_ext.pipelining.options import pipeline_arguments  # late: it imports the compiler

    if argument in pipeline_arguments() and argument != "name":
        return f"Instead of {argument}, call set_pipelining_options({argument}=...) of the model."
    return None


def _removed_class(name: str) -> type[RemovedModel]:
    return type(name, (RemovedModel,), {"__doc__": f"Removed: use {REPLACEMENTS[name]}.", "__module__": __name__})


REMOVED = {name: _removed_class(name) for name in REPLACEMENTS}
"""The removed classes by name."""


def __getattr__(name: str) -> type[RemovedModel]:
    """The removed class of that name; raises AttributeError for other names."""
    if name in REMOVED:
        return REMOVED[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
