"""The enumerations of a configuration; their numbers are those of the saved form."""

from enum import Enum, IntEnum


class DeviceConnectionType(Enum):
    """Time of the attachment to the device.

    ALWAYS: when the system is configured. ON_DEMAND: when a program needs it. PRE_COMPILE: never, and
    programs return zeros. NEVER: never.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    PRE_COMPILE = 2
    NEVER = 3


class ExecutionProfileType(Enum):
    """Contents of an execution profile: nothing, or the events of the device, of each IPU or of each tile."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Merging of compatible remote buffers: never, always, or where it lets code be shared."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """The algorithm that orders the instructions of a program.

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
    """The order in which IPUs become shards.

    AUTO: chosen for the network. ZIGZAG: by number. SNAKE: neighbours linked directly. HOOF: neighbours
    linked directly, and the first and the last on one card.
    """

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class StochasticRoundingBehaviour(IntEnum):
    """Use of stochastic rounding; OFF and ON equal False and True, which older programs write."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> "StochasticRoundingBehaviour":
        """The member for a bool.

        Args:
            value: whether to round stochastically.

        Returns:
            ON for True, OFF for False.
        """
        return cls.ON if value else cls.OFF
