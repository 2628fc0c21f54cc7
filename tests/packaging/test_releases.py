"""Releases of TensorFlow and Keras: pip installs the same range that the package accepts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from engine.errors import ConfigurationError
from ipu._internal.releases import RELEASES, check_release

PROJECT = Path(__file__).parent.parent.parent / "pyproject.toml"


def package(name: str, version: str) -> ModuleType:
    made = ModuleType(name)
    made.__version__ = version  # type: ignore[attr-defined]
    return made


def test_pip_installs_what_is_accepted() -> None:
    dependencies = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    for name, ((major, first), (_, last)) in RELEASES.items():
        assert f"{name.replace('_', '-')}>={major}.{first},<{major}.{last + 1}" in dependencies


@pytest.mark.parametrize("version", ["3.13.0", "3.14.1", "3.15.9"])
def test_releases_of_the_range_are_accepted(version: str) -> None:
    check_release(package("keras", version))


@pytest.mark.parametrize("version", ["2.15.0", "3.12.4", "3.16.0rc1", "4.0"])
def test_others_are_an_error_that_names_the_range(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"keras 3\.13 to 3\.15\. .*pip install 'keras>=3\.13,<3\.16'"):
        check_release(package("keras", version))
