"""Errors of Python functions that a session calls: TensorFlow passes on their texts, and here they are found again."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict

import tensorflow as tf

MOST_ERRORS = 64
"""Errors kept for sessions that have not raised them yet."""
_TAG = re.compile(r"\[ipu error (\d+)\]")
_errors: OrderedDict[int, BaseException] = OrderedDict()
_numbers = itertools.count()


def kept_error(error: BaseException) -> RuntimeError:
    """The error to raise in a function called by a session, with which `original_error` finds `error`."""
    number = next(_numbers)
    _errors[number] = error
    while len(_errors) > MOST_ERRORS:
        _errors.popitem(last=False)
    return RuntimeError(f"{type(error).__name__}: {error} [ipu error {number}]")


def original_error(error: tf.errors.OpError) -> BaseException:
    """The error of the function that a session has called, found by the session's error; else the session's own."""
    found = _TAG.search(str(error.message))
    return _errors.pop(int(found[1]), error) if found else error
