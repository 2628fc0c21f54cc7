"""`set_infeed_queue_options`, `set_outfeed_queue_options`: how far the host may be ahead of the engine, or behind."""

from __future__ import annotations

from typing import Any, ClassVar

from engine.errors import ConfigurationError
from engine.integers import checked_integer, is_integer
from ipu._internal.config.deprecation import warn_of_arguments
from ipu._internal.queues import deprecated_arguments
from keras_ext.extension import Extension, check_names, option, options_of
from keras_ext.types import KerasModel

INFEED, OUTFEED = "infeed_kwargs", "outfeed_kwargs"
MAXIMAL_DEPTH = 255
DEFAULT_PREFETCH_DEPTH = 3

# Arguments of the queues' constructors in any release, and those that Keras models fill in themselves.
IGNORED = ("feed_name", "replication_factor")
INFEED_ARGUMENTS = ("prefetch_depth", "optimise_latency", "device_ordinal", "data_to_prefetch", *IGNORED)
OUTFEED_ARGUMENTS = ("buffer_depth", "optimise_latency", "io_batch_size", *IGNORED)
INFEED_SET_BY_KERAS = dict.fromkeys(("dataset", "infeed_spec", "element_spec"), "the data are those of the run")
OUTFEED_SET_BY_KERAS = dict.fromkeys(("outfeed_mode", "device_ordinal"), "results go to callbacks and to the caller")


class QueueOptions(Extension):
    """The methods about the queues that feed data to and from the device."""

    SAVED: ClassVar[dict[str, Any]] = {INFEED: {}, OUTFEED: {}}

    def set_infeed_queue_options(self: KerasModel, **kwargs: object) -> None:
        """Sets the options of the infeed queues of `fit`, `evaluate` and `predict`.

        Args:
            **kwargs: arguments of IPUInfeedQueue. `prefetch_depth` is the number of executions for which tf.data
                prepares data ahead, 1 to 255; None or 0 means 3. Without it a super-batch of at most 64 MiB is
                prepared. Python iterators are read one execution ahead. `device_ordinal` must be that of the model's
                strategy.

        Raises:
            ValueError: an argument that IPUInfeedQueue lacks or that Keras fills in, or one out of range.
        """
        check_names("IPUInfeedQueue", kwargs, INFEED_ARGUMENTS, INFEED_SET_BY_KERAS)
        _check_number(kwargs, "prefetch_depth", 0, MAXIMAL_DEPTH)
        _check_number(kwargs, "device_ordinal", 0, None)
        _check_device(kwargs, self.distribute_strategy)
        _check_flag(kwargs, "optimise_latency")
        warn_of_arguments("set_infeed_queue_options", kwargs, deprecated_arguments.INFEED)
        options_of(self)[INFEED] = _plain(kwargs)

    def set_outfeed_queue_options(self: KerasModel, **kwargs: object) -> None:
        """Sets the options of the outfeed queues of `fit`, `evaluate` and `predict`.

        Args:
            **kwargs: arguments of IPUOutfeedQueue. `buffer_depth` is the number of steps whose results may wait for
                asynchronous callbacks before the engine waits. It does not wait for a callback that reads a variable,
                and so waits for the engine.

        Raises:
            ValueError: an argument that IPUOutfeedQueue lacks or that Keras fills in, or one out of range.
        """
        check_names("IPUOutfeedQueue", kwargs, OUTFEED_ARGUMENTS, OUTFEED_SET_BY_KERAS)
        _check_number(kwargs, "buffer_depth", 1, MAXIMAL_DEPTH)
        _check_flag(kwargs, "optimise_latency")
        warn_of_arguments("set_outfeed_queue_options", kwargs, deprecated_arguments.OUTFEED)
        options_of(self)[OUTFEED] = _plain(kwargs)


def prefetch_depth(model: KerasModel) -> int | None:
    """The number of executions for which a model's data are prepared ahead; None where it is not set."""
    options = option(model, INFEED, {})
    return options["prefetch_depth"] or DEFAULT_PREFETCH_DEPTH if "prefetch_depth" in options else None


def buffer_depth(model: KerasModel) -> int | None:
    """The number of steps whose results may wait for callbacks; None (not set) means all of an execution."""
    return option(model, OUTFEED, {}).get("buffer_depth")


def _check_device(arguments: dict[str, Any], strategy: object) -> None:
    given, own = arguments.get("device_ordinal"), getattr(strategy, "ordinal", 0)
    if given not in (None, own):
        raise ConfigurationError(
            f"Expected device_ordinal to be that of the model's strategy, {own}. Received: {given}. Leave it out, or "
            f"make the model in the scope of IPUStrategy('/device:IPU:{given}')."
        )


def _check_number(received: dict[str, Any], name: str, least: int, most: int | None) -> None:
    value = received.get(name)
    if value is None and name != "buffer_depth" or name not in received:
        return
    checked_integer(name, value, least, most)


def _check_flag(received: dict[str, Any], name: str) -> None:
    if name in received and not isinstance(received[name], bool):
        raise ConfigurationError(f"Expected {name} to be True or False. Received: {received[name]!r}.")


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options with NumPy's integers as Python's, for JSON."""
    return {name: int(value) if is_integer(value) else value for name, value in options.items()}
