"""Stored medians, in a file for each processor: the source of docs/performance.md."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from llvmlite.binding import get_host_cpu_name

from engine.machine_code.processor import lanes, target
from engine.runtime.threads import usable_cores
from engine.whole_files import write_whole

FOLDER = Path(__file__).parent / "kept"
LIBRARIES = ("tensorflow", "keras", "jax", "torch", "onnxruntime", "openvino")


@dataclass
class Figures:
    """The figures of one processor: values by kind ("races", "inference") and name, with their day and libraries."""

    path: Path
    processor: str
    measured: dict[str, dict[str, Any]]

    @classmethod
    def here(cls, folder: Path = FOLDER) -> Figures:
        """The figures of this processor, with those stored before."""
        name, features = target()
        host = get_host_cpu_name()
        kind = name if name == host else f"{host} with {name} alone"
        title = f"{usable_cores()} cores of {model()} ({kind}, {lanes()} float32 lanes"
        title += ", matrix registers)" if "amx-tile" in features else ")"
        path = folder / (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".json")
        measured = json.loads(path.read_text())["measured"] if path.exists() else {}
        return cls(path, title, measured)

    @classmethod
    def kept(cls, folder: Path = FOLDER) -> list[Figures]:
        """The figures of all processors, the last measured first."""
        found = [cls(path, **json.loads(path.read_text())) for path in folder.glob("*.json")]
        return sorted(found, key=lambda each: (each.days()[-1], each.processor), reverse=True)

    def add(self, kind: str, name: str, values: dict[str, Any]) -> None:
        """Store the values of a name of a kind at once: a run that is stopped loses nothing."""
        versions = {each: importlib.metadata.version(each) for each in LIBRARIES if importlib.util.find_spec(each)}
        self.measured.setdefault(kind, {})[name] = values | {"day": str(date.today()), "versions": versions}
        state = {"processor": self.processor, "measured": self.measured}
        write_whole(self.path, json.dumps(state, indent=1) + "\n")

    def barriers(self) -> list[float]:
        """Nanoseconds of empty barriers before and after the races; older races have none."""
        return [each for race in self.measured.get("races", {}).values() for each in race.get("barriers", ())]

    def days(self) -> list[str]:
        """The days of measurements, in order."""
        return sorted({each["day"] for each in self._all()})

    def versions(self) -> list[str]:
        """Each library with all measured versions of it."""
        pairs = sorted({pair for each in self._all() for pair in each["versions"].items()})
        found = {name: [version for other, version in pairs if other == name] for name in LIBRARIES}
        return [f"{name} {' and '.join(versions)}" for name, versions in found.items() if versions]

    def _all(self) -> Iterator[dict[str, Any]]:
        return (each for names in self.measured.values() for each in names.values())


def model() -> str:
    """The processor's name as the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", cpuinfo.read_text(), re.M) if cpuinfo.exists() else None
    return found[1].strip() if found else "an unknown processor"
