"""The categories of a configuration about the device: attachment, I/O tiles, model, arithmetic, processes."""

from __future__ import annotations

from ipu._internal.config.category import Category, option
from ipu._internal.config.enumerations import DeviceConnectionType, StochasticRoundingBehaviour


class DeviceConnection(Category):
    """Options for attaching to IPU devices."""

    type: DeviceConnectionType = option(
        DeviceConnectionType.ALWAYS,
        "When to attach to the device. A program can be compiled without attaching and run later, on a "
        "device, without compiling it again.",
    )
    version: str = option(
        "",
        "Version of the IPU hardware: 'ipu1', 'ipu2' or '' (default). Needed only for the connection types "
        "PRE_COMPILE and NEVER.",
    )
    enable_remote_buffers: bool = option(
        False,
        "Whether the system that will execute the programs supports remote buffers. Ignored for the "
        "connection type ALWAYS, where the device can be asked.",
    )


class MultiReplicaDistribution(Category):
    """Several processes that each execute a subset of the replicas of one program.

    The global replication factor is the local one times `process_count`.
    """

    process_index: int = option(0, "The index of the process being configured.")
    process_count: int = option(0, "The number of processes; 0 (default) means no multi-replica distribution.")


class Experimental(Category):
    """Experimental options, which may change or go without notice."""

    always_rearrange_copies_on_the_host: bool = option(
        False,
        "Rearrange streamed data on the host, at the expense of latency, where its layout differs between "
        "host and device. By default the device does it.",
    )
    enable_remote_buffer_embedding: bool = option(False, "Lets HostEmbedding use remote buffers.")
    enable_prng_stability: bool = option(
        False, "Makes random numbers independent of how the program was compiled and placed."
    )
    multi_replica_distribution: MultiReplicaDistribution


class FloatingPointBehaviour(Category):
    """Floating-point behaviour of the devices: exceptions, stochastic rounding, results of an overflow."""

    inv: bool = option(False, "An invalid operation (as IEEE 754 defines it) causes an exception.")
    div0: bool = option(False, "A division by zero causes an exception.")
    oflo: bool = option(False, "An overflow causes an exception.")
    esr: bool | StochasticRoundingBehaviour = option(
        False, "Where stochastic rounding is used: True and False, or a StochasticRoundingBehaviour."
    )
    nanoo: bool = option(False, "An overflow gives Not-a-Number.")
    set_all: bool = option(
        False,
        "Turns inv, div0, oflo, esr and nanoo on, whatever they are set to, when the system is configured.",
    )


class IOTiles(Category):
    """Parallel input and output on a subset of the tiles."""

    num_io_tiles: int = option(0, "Number of tiles to reserve for input and output.")
    place_ops_on_io_tiles: bool = option(False, "Whether to place I/O operations on the I/O tiles.")
    available_memory_proportion: float = option(
        0.9,
        "Proportion of the I/O tiles' memory in which data may be stored; the rest is for code. Operations "
        "with more data than that are not placed on I/O tiles, with a warning.",
    )


class IPUModel(Category):
    """Options of the IPU model; they have an effect only where the IPU model is used."""

    compile_ipu_code: bool = option(True, "Whether to compile IPU code for modelling.")
    tiles_per_ipu: int = option(
        0, "Number of tiles of each IPU; 0 (default) stands for the standard number of the chosen version."
    )
    version: str = option("ipu2", "Version of the modelled IPU: 'ipu1', 'ipu2' (default), 'bow' or 'c600' ('ipu21').")
