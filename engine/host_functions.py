"""Functions of the host that a program calls in the middle of a step: C functions by address, Python callables.

A module refers to one by a custom call, `host_function` in `engine.ir.builder`, with its key; the function lives as
long as its creator and the programs that call it. For each call in a program there is a `BoundFunction`, made by
`bind` for the shapes of that call. It has what machine code needs, the address of

    long f(void *data, void **operands, void **results)

whose arrays are those of the program, row-major, in place. `f` returns 0, or another number to end the step. It is
called by one worker, without the GIL, once for each execution of the custom call.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.errors import ConfigurationError, HostFunctionError
from engine.ir.device_operations import config_of
from engine.ir.module import Instruction
from engine.ir.shape import Shape

Shapes = tuple[Shape, ...]
ABI = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 3)

_keys = itertools.count(1)
_functions: weakref.WeakValueDictionary[int, HostFunction] = weakref.WeakValueDictionary()
_bound: weakref.WeakValueDictionary[int, PythonCall] = weakref.WeakValueDictionary()


class HostFunction:
    """A function of the host under a `key` that is valid in this process alone; its subclasses can be bound.

    `needs_gil` tells whether it runs Python code, and so should run on the calling thread, where signals arrive.
    """

    needs_gil = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = next(_keys)
        _functions[self.key] = self

    def begin(self) -> None:
        """Prepares for a call of a program with this function; called on the calling thread."""

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes."""
        raise NotImplementedError


def host_function(key: int) -> HostFunction:
    """The function of a key. Raises ConfigurationError where no function has it: another process's, or deleted."""
    found = _functions.get(key)
    if found is None:
        raise ConfigurationError(
            f"Expected a host function that lives in this process. Received: number {key}, which does not. Keep "
            f"the function alive as long as programs that call it; trace those of another process here."
        )
    return found


def bound_function(call: Instruction) -> BoundFunction:
    """The function that a custom call calls, for its shapes. Raises ConfigurationError as `host_function`."""
    shapes = tuple(operand.array_shape for operand in call.operands[:-1])
    return host_function(config_of(call)["function"]).bind(shapes, call.tuple_shapes[:-1])


class BoundFunction:
    """A function for one call in a program: `address` of the C function, its argument `data`, the shapes.

    Machine code stores what the function has returned in `status`, int64 [1].
    """

    def __init__(self, function: HostFunction, address: int, data: int, operands: Shapes, results: Shapes) -> None:
        self.function, self.address, self.data = function, address, data
        self.operands, self.results = operands, results
        self.status = np.zeros(1, np.int64)

    def __call__(self, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results, new arrays; as machine code calls it. Raises what the function raises, HostFunctionError."""
        given = [np.ascontiguousarray(value) for value in operands]
        results = tuple(np.zeros(shape.dimensions, shape.dtype) for shape in self.results)
        pointers = [
            (ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in arrays)) for arrays in (given, results)
        ]
        self.begin()
        self.status[0] = ABI(self.address)(self.data, *(ctypes.addressof(each) for each in pointers))
        self.raise_failure()
        return results

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

    `data` is its first argument. It must be safe to call from any thread, and must not call into the engine.
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
    """A Python callable for one call in a program; machine code calls it by the one trampoline."""

    def __init__(self, function: PythonFunction, operands: Shapes, results: Shapes) -> None:
        address = ctypes.cast(_trampoline, ctypes.c_void_p).value
        super().__init__(function, address or 0, next(_keys), operands, results)
        _bound[self.data] = self
        self._callable = function.callable
        self._operands = [_Memory(shape) for shape in operands]
        self._results = [_Memory(shape) for shape in results]
        self._addresses, self._result_addresses = (ctypes.c_size_t * len(each) for each in (operands, results))
        self._failure: BaseException | None = None
        self._thread, self._is_interrupted = 0, False

    def begin(self) -> None:
        """Forgets the failure of an earlier call of the program."""
        super().begin()
        self._failure, self._is_interrupted = None, False

    def guarded(self, operands: int, results: int) -> int:
        """Calls the callable on the arrays at the addresses at `operands`; 0, or 1 if it fails."""
        try:
            self._thread = threading.get_ident()
            try:
                self._run(operands, results)
            finally:
                self._thread = 0
        except BaseException as failure:  # nothing may leave a function that machine code calls
            self._failure = failure
            return 1
        return 0

    def _run(self, operands: int, results: int) -> None:
        addresses = self._addresses.from_address(operands)
        given = [memory.at(address) for memory, address in zip(self._operands, addresses, strict=True)]
        for array in given:
            array.flags.writeable = False
        returned = self._callable(*given)
        if len(returned) != len(self._results):
            raise self._wrong(f"{len(self._results)} results", str(len(returned)))
        addresses = self._result_addresses.from_address(results)
        for number, (memory, address) in enumerate(zip(self._results, addresses, strict=True)):
            value, shape = np.asarray(returned[number]), memory.shape
            if value.dtype != shape.dtype or value.shape != shape.dimensions:
                raise self._wrong(f"{shape} as result {number}", f"{value.dtype}{list(value.shape)}")
            memory.at(address)[...] = value

    def interrupt(self) -> None:
        """Raises KeyboardInterrupt in the thread that runs the callable, at its next bytecode."""
        if self._thread and not self._is_interrupted:
            self._is_interrupted = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt)
            )

    def raise_failure(self) -> None:
        """Raises what the callable raised, with its traceback."""
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


@ABI
def _trampoline(data: int, operands: int, results: int) -> int:
    call = _bound.get(data)
    return 1 if call is None else call.guarded(operands, results)
