"""`tf.contrib.training.HParams`: hyperparameters by name."""

from __future__ import annotations

import json
from typing import Any


class HParams:
    """Hyperparameters as attributes; each keeps the type of its first value."""

    def __init__(self, **values: Any) -> None:
        self._names: list[str] = []
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a parameter. Raises ValueError for a name that is taken."""
        if hasattr(self, name):
            raise ValueError(f"Expected the name of a new hyperparameter. Received: {name!r}, which is taken.")
        self._names.append(name)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a parameter. Raises KeyError for one that is not there."""
        if name not in self._names:
            raise KeyError(f"Expected one of the hyperparameters {self._names}. Received: {name!r}.")
        setattr(self, name, _of_type(value, getattr(self, name)))

    def get(self, key: str, default: Any = None) -> Any:
        """A parameter, or `default` if it is not there."""
        return getattr(self, key) if key in self._names else default

    def values(self) -> dict[str, Any]:
        """All parameters by name."""
        return {name: getattr(self, name) for name in self._names}

    def override_from_dict(self, values_dict: dict[str, Any]) -> HParams:
        """Changes several parameters. Raises KeyError as `set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse(self, values: str) -> HParams:
        """Changes parameters by a text such as `rate=0.1,layers=[8,4]`. Raises KeyError as `set_hparam`."""
        parts: list[str] = []
        for part in values.split(","):
            if parts and "=" not in part:  # of a list
                parts[-1] += f",{part}"
            elif part.strip():
                parts.append(part)
        return self.override_from_dict(
            {name.strip(): text for name, _, text in (each.partition("=") for each in parts)}
        )

    def to_json(self) -> str:
        """The parameters as an object of JSON."""
        return json.dumps(self.values())

    def __contains__(self, name: str) -> bool:
        return name in self._names


def _of_type(value: Any, former: Any) -> Any:
    """A value, or the value that a text stands for, of the type of another one."""
    if isinstance(former, list | tuple):
        values = value.strip("[] ").split(",") if isinstance(value, str) else value
        return type(former)(_of_type(each, former[0] if former else "") for each in values)
    if isinstance(value, str) and isinstance(former, bool):
        return value.strip().lower() in ("1", "true")
    return value if former is None else type(former)(value)
