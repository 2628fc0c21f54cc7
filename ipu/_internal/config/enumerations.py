"""The enumerations a configuration is written with; the numbers are those of the saved form."""

from enum import Enum, IntEnum


class DeviceConnectionType(Enum):
    """When to attach to the device.

    ALWAYS: while the system is configured. ON_DEMAND: when a program needs it. PRE_COMPILE: never, and
    whatever would run returns zeros. NEVER: never.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    PRE_COMPILE = 2
    NEVER = 3


class ExecutionProfileType(Enum):
    """What an execution profile holds: nothing, or the events of the device, of each IPU or of each tile."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Whether compatible remote buffers are merged: never, always, or where it lets code be used again."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """How the instructions of a program are put in order.

    CHOOSE_BEST: try several, keep the one with the lowest predicted peak of live memory. CLUSTERING: by
    groups of operations. POST_ORDER: by a walk of the graph. LOOK_AHEAD: by searching some operations ahead.
    SHORTEST_PATH: nearest to the root first.
    """

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class SelectionOrder(Enum):
    """In which order IPUs become shards.

    AUTO: chosen for the network. ZIGZAG: by number. SNAKE: neighbours linked directly. HOOF: neighbours
    linked directly, and the first and the last on one card.
    """

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class StochasticRoundingBehaviour(IntEnum):
    """Where stochastic rounding applies; OFF and ON equal False and True, which older programs write."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> "StochasticRoundingBehaviour":
        """ON for True, OFF for False."""
        return cls.ON if value else cls.OFF
