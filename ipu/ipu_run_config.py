"""Run configurations: the public names of `tensorflow.python.ipu.ipu_run_config` (Python API, 18.12.3)."""

from ipu._internal.estimators.ipu_run_config import IPURunConfig, RunConfig
from ipu._internal.names.namespace import public_names

__all__ = ["IPURunConfig", "RunConfig"]
__getattr__, __dir__ = public_names(__name__, __all__)
