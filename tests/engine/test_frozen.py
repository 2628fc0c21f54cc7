"""Frozen classes have the values, texts and hashes of frozen dataclasses."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from engine.frozen import frozen
from engine.ir.shape import Shape


class Empty:
    pass


class One:
    first: float


class Several:
    first: int
    second: tuple[float, ...] = ()
    unread: object = field(default=None, compare=False)
    hidden: list[int] = field(default_factory=list, compare=False, repr=False)


class Own:
    first: int

    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "own"


CASES = [(Empty, ()), (One, (float("nan"),)), (One, (-0.0,)), (Several, (3, (1.0, 2.0), "x")), (Own, (1,))]


@pytest.mark.parametrize(("kind", "arguments"), CASES)
def test_as_frozen_dataclasses(kind: Any, arguments: tuple[Any, ...]) -> None:
    ours, theirs = (
        make(type(kind.__name__, (), dict(vars(kind)) | {"__qualname__": kind.__qualname__}))
        for make in (frozen, dataclass(frozen=True, slots=True))
    )
    ours_one, theirs_one = ours(*arguments), theirs(*arguments)
    assert repr(ours_one) == repr(theirs_one)
    assert (ours_one == ours(*arguments)) == (theirs_one == theirs(*arguments))
    assert ours_one != theirs_one or kind is Own
    assert hash(ours_one) == hash(theirs_one)
    assert ours.__slots__ == theirs.__slots__ and ours.__match_args__ == theirs.__match_args__
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]


class Checked:
    first: int

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(self.first)


def test_objects_of_derived_classes_and_checks() -> None:
    checked = frozen(Checked)
    derived = frozen(
        type("Derived", (checked,), {"__annotations__": {"second": "list"}, "second": field(default_factory=list)})
    )
    plain = type("Plain", (derived,), {})
    one, other = plain(1), derived(2, second=[3])
    assert (one.first, one.second, other.first, other.second, derived(4).second) == (1, [], 2, [3], [])
    assert derived(1).second is not derived(1).second and checked(first=5).first == 5
    for kind in (checked, derived, plain):
        with pytest.raises(ValueError):
            kind(-1)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
            kind()


def test_differences_copies_and_files() -> None:
    shape = Shape("f32", (2, 3))
    assert replace(shape, element_type="f16") == Shape("f16", (2, 3)) != shape
    for again in (copy.copy(shape), copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert again == shape and hash(again) == hash(shape)
