"""The releases of TensorFlow and Keras whose internals this package uses, and the error for any other."""

from __future__ import annotations

import re
from types import ModuleType

from engine.errors import ConfigurationError

RELEASES = {"tensorflow": ((2, 20), (2, 21)), "keras": ((3, 13), (3, 15)), "tf_keras": ((2, 20), (2, 21))}
"""The oldest and the newest release of each package; pyproject.toml names them, too."""


def check_release(package: ModuleType) -> None:
    """Raises ConfigurationError for a release outside of RELEASES."""
    name = package.__name__
    oldest, newest = RELEASES[name]
    found = re.match(r"(\d+)\.(\d+)", package.__version__)
    if found is None or not oldest <= (int(found[1]), int(found[2])) <= newest:
        (major, first), (_, last) = oldest, newest
        raise ConfigurationError(
            f"Expected {name} {major}.{first} to {major}.{last}. Received: {package.__version__}. "
            f"Install one: pip install '{name}>={major}.{first},<{major}.{last + 1}'."
        )
