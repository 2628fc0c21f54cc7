"""Functions of the host that a program calls in the middle of a step: C functions by address, Python callables.

A module refers to one by a custom call, `host_function` in `engine.ir.builder`, with its key; the function lives as
long as its creator and the programs that call it. For each call in a program there is a `BoundFunction`, made by
`bind` for the shapes of that call. It has what machine code needs, the address of

    long f(void **operands, void **results, void *data)

whose arrays are those of the program, row-major, in place. `f` returns 0, or another number to end the step. It is
called by one worker, without the GIL, once for each execution of the custom call.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from engine.errors import ConfigurationError, HostFunctionError
from engine.ir.device_operations import config_of
from engine.ir.module import Instruction
from engine.ir.shape import Shape

Shapes = tuple[Shape, ...]
ABI = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 3)
TRAMPOLINE = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_size_t)

_keys = itertools.count(1)
_functions: weakref.WeakValueDictionary[int, HostFunction] = weakref.WeakValueDictionary()


class HostFunction:
    """A function of the host under a `key` that is valid in this process alone; subclasses can be bound.

    `needs_gil` says whether the function runs Python code, and so should run on the calling thread, where signals
    arrive. `replicas` is the number of replicas of the programs that call it. `variable` is a variable of the host
    whose memory it uses in place: programs that call it must not use the variable themselves.
    """

    needs_gil = False
    replicas = 1
    variable: Any = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = next(_keys)
        _functions[self.key] = self

    def begin(self) -> None:
        """Prepares for a call of a program with this function; called on the calling thread."""

    def end(self) -> None:
        """Follows a call of a program with this function, however it ended, and a `begin` that raised an error."""

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes."""
        raise NotImplementedError


def host_function(key: int) -> HostFunction:
    """The function of a key. Raises ConfigurationError where no function has it: another process's, or deleted."""
    found = _functions.get(key)
    if found is None:
        raise ConfigurationError(
            f"Expected a host function that is in this process. Received: number {key}, which is not. Keep "
            f"the function alive as long as programs that call it; trace those of another process here."
        )
    return found


def bound_function(call: Instruction) -> BoundFunction:
    """The function that a custom call calls, for its shapes. Raises ConfigurationError as `host_function` does."""
    shapes = tuple(operand.array_shape for operand in call.operands[:-1])
    return host_function(config_of(call)["function"]).bind(shapes, call.tuple_shapes[:-1])


class BoundFunction:
    """A function for one call in a program: `address` of the C function, its argument `data`, the shapes.

    Machine code stores what the function has returned in `status`, int64 [1]. A function of the engine's own is a
    `codelet`, with the parameters of `host_call`, in place of an address.
    """

    codelet: Any = None

    def __init__(self, function: HostFunction, address: int, data: int, operands: Shapes, results: Shapes) -> None:
        self.function, self.address, self.data = function, address, data
        self.operands, self.results = operands, results
        self.status = np.zeros(1, np.int64)

    def __call__(self, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Calls the function as machine code does: returns new arrays. Raises the function's error, or
        HostFunctionError.
        """
        given = [np.ascontiguousarray(value) for value in operands]
        results = tuple(np.zeros(shape.dimensions, shape.dtype) for shape in self.results)
        words = [array.ctypes.data for array in (*given, *results)]
        addresses = (ctypes.c_size_t * (len(words) + 1))(*words)
        first = ctypes.addressof(addresses)
        try:
            self.begin()
            self._call(first, first + ctypes.sizeof(ctypes.c_size_t) * len(given))
        finally:
            self.function.end()
        self.raise_failure()
        return results

    def _call(self, operands: int, results: int) -> None:
        """Calls the function with the addresses of the arrays' addresses, which follow each other."""
        self.status[0] = ABI(self.address)(operands, results, self.data)

    def begin(self) -> None:
        """Forgets the failure of an earlier call of the program."""
        self.status[0] = 0
        self.function.begin()

    def interrupt(self) -> None:
        """Asks a running function to end; C functions cannot be interrupted."""

    def raise_failure(self) -> None:
        """Raises the error that ended the step, if this function did: HostFunctionError for a number other than 0."""
        if self.status[0]:
            raise HostFunctionError(
                f"Expected host function {self.function.name!r} to return 0. Received: {int(self.status[0])}, which "
                f"ends the step. Variables have the values of the last whole step."
            )

    def __repr__(self) -> str:
        return self.function.name


class CFunction(HostFunction):
    """A C function of the signature above, in a library that `keep` holds open, called without the GIL.

    `data` is its last argument. It must be safe to call from any thread, and must not call into the engine.
    """

    def __init__(self, name: str, address: int, data: int = 0, keep: object = None) -> None:
        super().__init__(name)
        self.address, self.data, self.keep = address, data, keep

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes."""
        return BoundFunction(self, self.address, self.data, operands, results)


class PythonFunction(HostFunction):
    """A Python callable: it gets an array for each operand, and returns a sequence with an array for each result.

    Operands are the program's own memory, read-only and valid during the call alone: copy what is to be kept.
    Results must have the shapes and dtypes of the call, else HostFunctionError. What the callable raises ends the step,
    and is raised from the program's call.
    """

    needs_gil = True

    def __init__(self, name: str, callable: Callable[..., Sequence[Any]]) -> None:
        super().__init__(name)
        self.callable = callable

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes."""
        return PythonCall(self, operands, results)


class PythonCall(BoundFunction):
    """A Python callable for one call in a program, as a C function of one argument: the addresses of all arrays.

    The call resumes a generator: a signal is raised where Python code begins, and in a generator that is inside a
    `try`.
    """

    def __init__(self, function: PythonFunction, operands: Shapes, results: Shapes) -> None:
        self._failure: BaseException | None = None
        self._thread, self._is_interrupted = 0, False
        calls = self._calls(function.callable, [_Memory(s) for s in operands], [_Memory(s) for s in results])
        next(calls)
        self._trampoline = TRAMPOLINE(calls.send)
        address = ctypes.cast(self._trampoline, ctypes.c_void_p).value or 0
        super().__init__(function, address, 0, operands, results)

    def begin(self) -> None:
        """Forgets the failure of an earlier call of the program."""
        super().begin()
        self._failure, self._is_interrupted = None, False

    def _calls(
        self, callable: Callable[..., Sequence[Any]], operands: list[_Memory], results: list[_Memory]
    ) -> Generator[int, int, None]:
        """Takes the address of the arrays' addresses, calls the callable; gives 0, or 1 if it fails."""
        status, words = 0, ctypes.c_size_t * (len(operands) + len(results))
        while True:
            try:
                addresses = words.from_address((yield status))
                self._thread = threading.get_ident()
                given = [memory.at(address) for memory, address in zip(operands, addresses, strict=False)]
                for array in given:
                    array.flags.writeable = False
                returned = callable(*given)
                if len(returned) != len(results):
                    raise self._wrong(f"{len(results)} results", str(len(returned)))
                for number, memory in enumerate(results):
                    value, shape = np.asarray(returned[number]), memory.shape
                    if value.dtype != shape.dtype or value.shape != shape.dimensions:
                        raise self._wrong(f"{shape} as result {number}", f"{value.dtype}{list(value.shape)}")
                    memory.at(addresses[len(operands) + number])[...] = value
                self._thread = status = 0
            except GeneratorExit:
                return
            except BaseException as failure:  # no error may leave a function that machine code calls
                self._failure, self._thread, status = failure, 0, 1

    def interrupt(self) -> None:
        """Raises KeyboardInterrupt in the thread that runs the callable, at its next bytecode."""
        if self._thread and not self._is_interrupted:
            self._is_interrupted = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt)
            )

    def raise_failure(self) -> None:
        """Raises the callable's error, with its traceback."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        super().raise_failure()

    def _wrong(self, expected: str, received: str) -> HostFunctionError:
        return HostFunctionError(
            f"Expected {expected} of host function {self.function.name!r}. Received: {received}. "
            f"Convert what it returns, or declare the shape and dtype that it has."
        )


class _Memory:
    """Arrays of one shape in a program's memory; the one at the latest address is kept."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self._address = shape, 0
        self._array = np.zeros(shape.dimensions, shape.dtype)

    def at(self, address: int) -> np.ndarray:
        """The array at an address."""
        if address != self._address and self.shape.bytes:
            memory = memoryview((ctypes.c_char * self.shape.bytes).from_address(address))
            self._array = np.ndarray(self.shape.dimensions, self.shape.dtype, memory)
            self._address = address
        return self._array
