"""IPUConfig: the options of an IPU system, and the call that configures it with them."""

from __future__ import annotations

import inspect

from ipu._internal.config.option_tree import OptionTree, document
from ipu._internal.config.system import configure_ipu_system


class IPUConfig(OptionTree):
    """The configuration of an IPU system.

    Attributes have exact types: setting one to a value of another type raises TypeError, and one that does
    not exist, ValueError. Nothing happens before `configure_ipu_system` is called.
    """

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Configures the IPU system with this configuration.

        Args:
            device: no effect: the host is the one CPU.

        Raises:
            ValueError: attributes that contradict each other.
        """
        configure_ipu_system(self, device)


IPUConfig.__doc__ = f"{inspect.getdoc(IPUConfig)}\n\n{document(IPUConfig())}\n"
