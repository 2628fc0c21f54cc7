"""Validation of a configuration as a whole: contradictions are refused, numbers become devices."""

from __future__ import annotations

from engine.errors import ConfigurationError
from ipu._internal.config.enumerations import DeviceConnectionType
from ipu._internal.config.library_flags import LIBRARIES, REPORTS, check_flags
from ipu._internal.config.option_tree import OptionTree
from ipu._internal.processes.active import active

# Number of IPUs of each Id that `gc-info -l` lists for a system of sixteen.
IPUS_OF_ID = (1,) * 16 + (2,) * 8 + (4,) * 4 + (8,) * 2 + (16,)
VERSIONS = ("ipu1", "ipu2", "ipu21")
MODEL_VERSIONS = (*VERSIONS, "bow", "c600")
"""Versions with further chips that the cost report knows, whose architecture is the Mk2's."""


GROUP_SIZE = "norms.experimental.distributed_batch_norm_replica_group_size"
LEAST = {"scheduling.maximum_scheduler_search_space_size": 1, GROUP_SIZE: 1}
"""The least values of integer options where it is not 0."""


def normalise_selection(config: OptionTree) -> None:
    """Replaces a single number in `auto_select_ipus` or `select_ipus` by a list, in place."""
    for name in ("auto_select_ipus", "select_ipus"):
        value = getattr(config, name)
        setattr(config, name, [value] if isinstance(value, int) else list(value))


def _selection(config: OptionTree) -> tuple[list[int], list[int]]:
    """`auto_select_ipus` and `select_ipus`, which have been normalised."""
    numbers, ids = config.auto_select_ipus, config.select_ipus
    assert not isinstance(numbers, int) and not isinstance(ids, int)
    return list(numbers), list(ids)


def ipus_per_device(config: OptionTree) -> tuple[int, ...]:
    """The number of IPUs of each TensorFlow device; one device of one IPU where nothing is selected."""
    automatic, chosen = _selection(config)
    return tuple(IPUS_OF_ID[index] for index in chosen) or tuple(automatic) or (1,)


def id_of_ipus(number: int) -> int:
    """The first Id with `number` IPUs. Raises ConfigurationError where there is none."""
    if number not in IPUS_OF_ID:
        nearest = min(IPUS_OF_ID, key=lambda each: abs(each - number))
        raise ConfigurationError(
            f"Expected a device of {', '.join(map(str, sorted(set(IPUS_OF_ID))))} IPUs. Received: {number}. Nearest: "
            f"{nearest}."
        )
    return list(IPUS_OF_ID).index(number)


def validate(config: OptionTree, on_ipu_model: bool) -> None:
    """Raises ConfigurationError (a ValueError) where attributes contradict each other or have no meaning.

    Args:
        config: a configuration whose selection has been normalised.
        on_ipu_model: whether programs run on the IPU model instead of IPU hardware.
    """
    validate_least(config)
    validate_selection(config, on_ipu_model)
    validate_device_connection(config)
    validate_io_tiles(config)
    validate_distribution(config, on_ipu_model)
    validate_flags(config)
    if on_ipu_model and config.ipu_model.version not in MODEL_VERSIONS:
        raise ConfigurationError(
            f"Expected ipu_model.version to be one of {MODEL_VERSIONS}, because the IPU model is in use. "
            f"Received: {config.ipu_model.version!r}."
        )


def validate_least(config: OptionTree) -> None:
    """Raises ConfigurationError for negative numbers of bytes, tiles or steps."""
    values = dict(config._items())
    for name, value in values.items():
        if type(value) is int and value < LEAST.get(name, 0):
            raise ConfigurationError(f"Expected {name} to be {LEAST.get(name, 0)} or more. Received: {value}.")


def validate_selection(config: OptionTree, on_ipu_model: bool) -> None:
    """Raises ConfigurationError for both kinds of selection at once, empty devices, and missing or repeated Ids."""
    automatic, chosen = _selection(config)
    if automatic and chosen:
        raise ConfigurationError(
            "Expected one of auto_select_ipus and select_ipus. "
            f"Received both: {automatic} and {chosen}. Set one of them to []."
        )
    if any(count < 1 for count in automatic):
        raise ConfigurationError(
            f"Expected each number in auto_select_ipus to be 1 or more. Received: {automatic}. "
            "Each number is the IPUs of one TensorFlow device."
        )
    if not chosen:
        return
    if on_ipu_model:
        raise ConfigurationError(
            f"Expected select_ipus to be [] with the IPU model, which has no Ids. Received: {chosen}. "
            "Use auto_select_ipus."
        )
    if len(set(chosen)) != len(chosen):
        raise ConfigurationError(
            f"Expected each Id in select_ipus once. Received: {chosen}. Nearest: {list(dict.fromkeys(chosen))}."
        )
    last = len(IPUS_OF_ID) - 1
    if not all(0 <= index <= last for index in chosen):
        nearest = list(dict.fromkeys(min(max(index, 0), last) for index in chosen))
        raise ConfigurationError(
            f"Expected each Id in select_ipus to be one of 0 to {last}. Received: {chosen}. Nearest: {nearest}."
        )


def validate_device_connection(config: OptionTree) -> None:
    """Raises ConfigurationError for a version that is unknown, or missing for a device that is never attached."""
    connection = config.device_connection
    detached = connection.type in (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER)
    allowed = VERSIONS if detached else ("", *VERSIONS)
    if connection.version not in allowed:
        raise ConfigurationError(
            f"Expected device_connection.version to be one of {allowed} with {connection.type}. "
            f"Received: {connection.version!r}."
        )


def validate_io_tiles(config: OptionTree) -> None:
    """Raises ConfigurationError for I/O operations without I/O tiles, and for distributed batch norms with them."""
    tiles, group = config.io_tiles, config.norms.experimental.distributed_batch_norm_replica_group_size
    if not 0.0 <= tiles.available_memory_proportion <= 1.0:
        raise ConfigurationError(
            "Expected io_tiles.available_memory_proportion to be between 0.0 and 1.0. "
            f"Received: {tiles.available_memory_proportion}. It is a fraction, not a percentage: 0.9, not 90."
        )
    if tiles.num_io_tiles and group > 1:
        raise ConfigurationError(
            "Expected io_tiles.num_io_tiles to be 0 with distributed batch norms. Received: "
            f"{tiles.num_io_tiles} with distributed_batch_norm_replica_group_size {group}. "
            "Set one of them to its default."
        )
    if tiles.place_ops_on_io_tiles and not tiles.num_io_tiles:
        raise ConfigurationError(
            "Expected io_tiles.num_io_tiles to be more than 0 with io_tiles.place_ops_on_io_tiles. "
            "Received: 0. 32 is a common number of I/O tiles."
        )


def validate_distribution(config: OptionTree, on_ipu_model: bool) -> None:
    """Raises ConfigurationError for a process index out of range, several processes, or processes on the IPU model."""
    distribution = config.experimental.multi_replica_distribution
    count, index = distribution.process_count, distribution.process_index
    if count < 0 or not 0 <= index < max(count, 1):
        raise ConfigurationError(
            "Expected experimental.multi_replica_distribution.process_index to be at least 0 and less than "
            f"process_count. Received: process_index {index} with process_count {count}."
        )
    if count and on_ipu_model:
        raise ConfigurationError(
            "Expected experimental.multi_replica_distribution.process_count to be 0 with the IPU model. "
            f"Received: {count}."
        )
    transport = active()
    size, rank = (1, 0) if transport is None else (transport.size, transport.rank)
    if count > 1 and (count, index) != (size, rank):
        raise ConfigurationError(
            f"Expected experimental.multi_replica_distribution of this run, process_count {size} and process_index "
            f"{rank}. Received: {count} and {index}. Start the program by python -m ipu.run --processes {count}, and "
            f"let PopDistStrategy.update_ipu_config(config) set both."
        )


def validate_flags(config: OptionTree) -> None:
    """Raises ConfigurationError for a key of a dictionary of option flags that its library lacks, and for a value that
    cost reports cannot read.
    """
    values = dict(config._items())
    for name, library in (LIBRARIES | REPORTS).items():
        check_flags(name, values.get(name, {}), library)
    of_plans = [values[f"{library}.poplar_options"] for library in ("matmuls", "convolutions", "slices")]
    if any(of_plans):
        from engine.profile.options import Assumptions

        Assumptions.from_options(*of_plans)
