"""The names of `popdist.tensorflow`."""

from __future__ import annotations

from ipu._internal.config.option_tree import OptionTree
from ipu._internal.processes.active import initialise
from ipu._internal.processes.settings import local_replicas


def set_ipu_config(config: OptionTree, ipus_per_replica: int = 1, configure_device: bool = True) -> None:
    """Sets the processes of the run in a configuration, and with `configure_device` the IPUs of the local replicas."""
    transport = initialise()
    if transport.size > 1:
        config.experimental.multi_replica_distribution.process_count = transport.size
        config.experimental.multi_replica_distribution.process_index = transport.rank
    if configure_device:
        config.auto_select_ipus = local_replicas() * ipus_per_replica
