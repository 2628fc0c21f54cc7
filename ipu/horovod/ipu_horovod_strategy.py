"""IPUHorovodStrategy: synchronous training by processes that a launcher of MPI has started."""

from __future__ import annotations

from engine.errors import UnsupportedOperation
from ipu._internal.names.namespace import public_names
from ipu.distributed.popdist_strategy import PopDistExtendedV1, PopDistStrategy
from ipu.ipu_strategy import IPUStrategyV1

__all__ = ["IPUHorovodExtended", "IPUHorovodStrategy"]
__getattr__, __dir__ = public_names(
    __name__,
    __all__,
    dict.fromkeys(("IPUMirroredVariable", "IPUSyncOnReadVariable"), "ipu.distributed.popdist_strategy"),
)

IPUHorovodExtended = PopDistExtendedV1


class IPUHorovodStrategy(PopDistStrategy):
    """Variables and gradients are kept equal on all processes (Python API, 18.10).

    Args:
        ipu_device: the TensorFlow name of the IPU device.
        variables_on_host: must be False: variables that the host reads are copied to it in any case.

    Raises:
        UnsupportedOperation: `variables_on_host` is True.
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        if variables_on_host:
            raise UnsupportedOperation(
                "Expected variables_on_host to be False. Received: True. Variables are copied to the host when they "
                "are read there; leave the argument out."
            )
        super().__init__(ipu_device)

    def without_keras_extensions(self) -> IPUStrategyV1:
        """An interchangeable strategy whose scope does not extend Keras models."""
        return PopDistStrategy(self._ipu_device, enable_keras_extensions=False)
