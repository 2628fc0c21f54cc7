"""PopDistStrategy by its earlier path, beside Horovod's strategies."""

from ipu._internal.names.namespace import public_names

HOMES = dict.fromkeys(("PopDistExtendedV1", "PopDistStrategy"), "ipu.distributed.popdist_strategy")
__getattr__, __dir__ = public_names(__name__, HOMES, HOMES)
