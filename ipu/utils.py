"""General utilities: the public names of `tensorflow.python.ipu.utils`."""

from __future__ import annotations

import operator
from enum import Enum
from typing import SupportsIndex

from engine.errors import UnsupportedOperation
from ipu import config
from ipu._internal.config.legacy_functions import FUNCTIONS
from ipu._internal.config.system import device_named, on_ipu_model, synthetic_data_categories
from ipu._internal.export_data import export_dataset_to_file, export_inputs_to_file, move_variable_initialization_to_cpu
from ipu._internal.names.namespace import public_names

HOMES = dict.fromkeys(
    (
        "extract_all_events",
        "extract_all_strings_from_event_trace",
        "extract_all_types_from_event_trace",
        "extract_compile_reports",
        "extract_execute_reports",
        "extract_poplar_serialized_graphs",
    ),
    "ipu._internal.profiling.event_trace",
)
__all__ = [
    "SyntheticDataCategory",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "use_synthetic_data_for",
    *config.__all__,
    *FUNCTIONS,
    *HOMES,
]
__getattr__, __dir__ = public_names(__name__, __all__, HOMES)
# Older programs find the configuration here.
globals().update(FUNCTIONS | {name: getattr(config, name) for name in config.__all__})


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Get the number of physical IPUs of a device, over all its replicas.

    Args:
        ipu_device: the IPU device, such as "/device:IPU:0".
        device: no effect: the host is the one CPU.

    Returns:
        The number of IPUs: those of one replica times the replicas.

    Raises:
        ValueError: `ipu_device` names no IPU device, or one that is not configured.
    """
    return device_named(ipu_device).ipus


def reset_ipu_seed(
    seed: SupportsIndex,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Reset the seed used to generate stateful random numbers and perform stochastic rounding.

    The new seed holds for programs that are compiled already, too.

    Without a call each process starts from its own seed. `tf.random.uniform`, `tf.nn.dropout` and the like draw from
    this generator; Keras 3 layers with a seed argument do not. All devices of a process share it.

    Args:
        seed: the new seed; only the lowest 64 bits of an integer are used.
        device: a configured IPU device; the seed is that of all of them.
        cpu_device: no effect: the host is the one CPU.
        experimental_identical_replicas: must be False where the device has several IPUs: replicas draw different
            numbers from one generator, one after the other. Values that are equal on all replicas are rounded once
            for all of them, so that they stay equal.

    Raises:
        TypeError: `seed` is no integer.
        ValueError: `device` names no IPU device, or one that is not configured.
        NotImplementedError: `experimental_identical_replicas` for a device of several IPUs.
    """
    from engine.ops.generators import seed_rng, seed_rounding  # not at the top: configuring needs no NumPy

    ipus = device_named(device).ipus
    if experimental_identical_replicas and ipus > 1:
        raise UnsupportedOperation(
            f"Expected experimental_identical_replicas=False: replicas draw different random numbers here. Received: "
            f"True for {device} of {ipus} IPUs. Leave it out for a device of one replica; for the same numbers on all "
            f"replicas draw from a seed that is an argument or a constant, with tf.random.stateless_uniform."
        )
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"Expected seed to be an integer. Received: {seed!r} of type {type(seed).__name__}.") from None
    seed_rng(value)
    seed_rounding(value)


def running_on_ipu_model() -> bool:
    """Check if programs are to run on the IPU model, which TF_POPLAR_FLAGS=--use_ipu_model selects."""
    return on_ipu_model()


class SyntheticDataCategory(Enum):
    """Categories of synthetic data in TF_POPLAR_FLAGS."""

    Seed = "seed"
    Infeed = "infeed"
    Outfeed = "outfeed"
    HostEmbedding = "hostembedding"
    Parameters = "parameters"


def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory) -> bool:
    """Get whether synthetic data is selected for the given category.

    TF_POPLAR_FLAGS selects it with --use_synthetic_data, for all categories, or with --synthetic_data_categories, for
    some. Infeed queues then have zeros, or the values of --synthetic_data_initializer, and outfeed queues stay empty.
    Seeds, parameters and the data of Keras' fit are always real.

    Args:
        synthetic_data_category: a SyntheticDataCategory enum value.

    Returns:
        True if TF_POPLAR_FLAGS selects synthetic data for the category, also for one whose data are always real.

    Raises:
        TypeError: `synthetic_data_category` is no SyntheticDataCategory.
    """
    if not isinstance(synthetic_data_category, SyntheticDataCategory):
        raise TypeError(
            f"Expected a SyntheticDataCategory. Received: {synthetic_data_category!r} of type "
            f"{type(synthetic_data_category).__name__}."
        )
    categories = synthetic_data_categories()
    return categories is None or synthetic_data_category.value in categories
