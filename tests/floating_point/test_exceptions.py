"""Floating-point exceptions: the engine finds those of the definitions, names them, and leaves everything usable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.compile import build_program, compile_module, prepare
from engine.errors import FloatingPointException, IPUError
from engine.evaluate import evaluate
from engine.evaluated_executable import EvaluatedExecutable
from engine.host.passes.pass_list import passes_for
from engine.ir import Instruction, Module
from engine.ir.attributes import WindowDimension
from engine.ir.builder import Builder
from engine.ir.floating_point import EXCEPTIONS, IEEE, FloatingPoint
from engine.ops.exceptions import exceptions_of, watching_exceptions
from engine.program.run_passes import run_passes
from engine.runtime.feeds import RowFeed
from tests.engine.running import buffers
from tests.exploring import sample
from tests.floating_point.programs import ALL_EXCEPTIONS, loop
from tests.program.test_row_sums import adam_step, is_summed_where_read

INF, NAN = np.inf, np.nan
ONES = np.ones((5, 37), np.float32)
TYPES = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "s32", "bfloat16": "bf16"}
Program = Callable[..., Instruction]


def with_values(values: dict[tuple[int, int], float], dtype: str = "float32") -> np.ndarray:
    """Ones with some elements replaced; the last element of a row is in no whole vector."""
    array = ONES.copy()
    for place, value in values.items():
        array[place] = value
    return array.astype(dtype)


def module_of(program: Program, arguments: list[np.ndarray]) -> Module:
    b = Builder("program")
    parameters = [b.parameter(TYPES[a.dtype.name], a.shape) for a in arguments]
    root = program(b, *parameters)
    for instruction in b.instructions:
        instruction.op_name = f"model/layer_1/{instruction.opcode.title()}"
    return b.module(b.tuple(root))


def raised(
    module: Module, arguments: list[np.ndarray], behaviour: FloatingPoint = ALL_EXCEPTIONS
) -> FloatingPointException | None:
    """The exception that the engine raises."""
    executable = compile_module(module, ["variable"] * len(arguments), {}, verify=True, floating_point=behaviour)
    try:
        executable.run(1, [], buffers(arguments))
    except FloatingPointException as error:
        return error
    return None


def defined(module: Module, arguments: list[np.ndarray]) -> list[tuple[str, str, int]]:
    """The exceptions that the definitions find, in order: name, opcode and number of elements."""
    with watching_exceptions(frozenset(EXCEPTIONS)) as found, np.errstate(all="ignore"):
        evaluate(prepare(module), arguments)
    return [(name, origin.opcode, elements) for name, origin, elements in found]


def check(program: Program, *arguments: np.ndarray) -> FloatingPointException | None:
    """Asserts that the engine raises if and only if the definitions do, and then one of their exceptions."""
    module = module_of(program, list(arguments))
    error, expected = raised(module, list(arguments)), defined(module, list(arguments))
    assert (error is not None) == bool(expected), (error, expected)
    if error is not None:
        assert (error.exception, error.opcode, error.elements) in expected
    return error


BINARY = {
    ("divide", "div0", 2): (ONES, with_values({(2, 3): 0, (4, 36): -0.0})),
    ("divide", "inv", 1): (with_values({(1, 1): 0}), with_values({(1, 1): 0})),
    ("divide", "inv", 3): (with_values({(1, 1): INF, (0, 0): INF, (0, 36): -INF}),) * 2,
    ("divide", "oflo", 1): (with_values({(4, 36): 1e30}), with_values({(4, 36): 1e-30})),
    ("add", "inv", 1): (with_values({(0, 36): INF}), with_values({(0, 36): -INF})),
    ("subtract", "inv", 1): (with_values({(0, 36): INF}), with_values({(0, 36): INF})),
    ("add", "oflo", 185): (ONES * np.float32(3e38), ONES * np.float32(3e38)),
    ("multiply", "oflo", 1): (with_values({(3, 35): -1e30}), with_values({(3, 35): 1e30})),
    ("multiply", "inv", 1): (with_values({(3, 35): INF}), with_values({(3, 35): 0})),
    ("power", "div0", 1): (with_values({(3, 35): 0}), with_values({(3, 35): -1})),
    ("power", "inv", 1): (with_values({(3, 35): -2}), with_values({(3, 35): 0.5})),
    ("remainder", "inv", 1): (ONES, with_values({(3, 35): 0})),
}
UNARY = {
    ("log", "div0", 1): with_values({(4, 0): 0}),
    ("log", "inv", 2): with_values({(4, 0): -1, (0, 36): -INF}),
    ("log-plus-one", "div0", 1): with_values({(4, 0): -1}),
    ("rsqrt", "div0", 1): with_values({(4, 0): 0}),
    ("rsqrt", "inv", 1): with_values({(4, 0): -4}),
    ("sqrt", "inv", 1): with_values({(4, 0): -4}),
    ("exponential", "oflo", 1): with_values({(4, 0): 100}),
    ("exponential-minus-one", "oflo", 1): with_values({(4, 0): 100}),
    ("sine", "inv", 1): with_values({(4, 0): INF}),
}


@pytest.mark.parametrize(("case", "arguments"), BINARY.items(), ids=str)
def test_binary_operations(case: tuple[str, str, int], arguments: tuple[np.ndarray, np.ndarray]) -> None:
    opcode, name, elements = case
    error = check(lambda b, x, y: b.elementwise(opcode, x, y), *arguments)
    assert error is not None and (error.exception, error.opcode, error.elements) == (name, opcode, elements)


@pytest.mark.parametrize(("case", "argument"), UNARY.items(), ids=str)
def test_unary_operations(case: tuple[str, str, int], argument: np.ndarray) -> None:
    opcode, name, elements = case
    error = check(lambda b, x: b.elementwise(opcode, x), argument)
    assert error is not None and (error.exception, error.opcode, error.elements) == (name, opcode, elements)


def test_the_error_says_what_and_where() -> None:
    error = raised(
        module_of(lambda b, x, y: b.divide(x, y), [ONES, with_values({(2, 3): 0})]), [ONES, with_values({(2, 3): 0})]
    )
    assert isinstance(error, FloatingPointError) and isinstance(error, ArithmeticError) and isinstance(error, IPUError)
    assert (error.layer, error.op_name, error.step) == ("layer_1", "model/layer_1/Divide", 0)
    text = str(error)
    for part in ("division by zero", "div0", "1 of 185 elements", "divide", "'layer_1'", "step 1 of 1"):
        assert part in text, text


@pytest.mark.parametrize("wanted", EXCEPTIONS)
def test_only_what_is_asked_for_is_an_error(wanted: str) -> None:
    arguments = {
        "inv": (with_values({(1, 1): 0}), with_values({(1, 1): 0})),
        "div0": (ONES, with_values({(1, 1): 0})),
        "oflo": (ONES * np.float32(1e30), ONES * np.float32(1e-30)),
    }
    for name, (x, y) in arguments.items():
        module = module_of(lambda b, x, y: b.divide(x, y), [x, y])
        error = raised(module, [x, y], FloatingPoint(exceptions=frozenset({wanted})))
        assert (error is not None) == (name == wanted)


def test_what_was_so_before_is_no_exception() -> None:
    non_finite = with_values({(0, 0): INF, (1, 1): NAN, (4, 36): -INF})

    def program(b: Builder, x: Instruction, y: Instruction) -> Instruction:
        chain = b.multiply(b.add(x, y), b.subtract(y, b.divide(y, b.add(y, y))))
        return b.elementwise("maximum", b.elementwise("exponential", chain), b.elementwise("abs", x))

    assert check(program, non_finite, ONES) is None
    assert check(lambda b, x, y: b.divide(y, x), non_finite, ONES) is None


def test_an_exception_that_a_selection_hides() -> None:
    """The chip computes both sides, and raises for the one that is not selected, too."""
    divisor = with_values({(2, 3): 0})

    def program(b: Builder, x: Instruction, y: Instruction) -> Instruction:
        zeros = b.splat(0.0, (5, 37))
        return b.select(b.compare(y, zeros, "EQ"), zeros, b.divide(x, y))

    error = check(program, ONES, divisor)
    assert error is not None and (error.exception, error.opcode) == ("div0", "divide")


def test_the_first_of_a_fused_chain_is_named() -> None:
    """The logarithm of 0 is a pole, which then overflows and becomes NaN further on."""

    def program(b: Builder, x: Instruction) -> Instruction:
        pole = b.elementwise("log", x)
        square = b.multiply(pole, pole)
        return b.subtract(square, square)

    error = check(program, with_values({(4, 36): 0}))
    assert error is not None and (error.exception, error.opcode, error.elements) == ("div0", "log", 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_widths(dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    large = ONES * 6e4 if dtype == "float16" else ONES.astype(np.float64) * (3e38 if dtype == "bfloat16" else 1e308)
    with np.errstate(over="ignore"):
        x = large.astype(kind)
    error = check(lambda b, x: b.add(x, x), x)
    assert error is not None and (error.exception, error.elements) == ("oflo", 185)
    assert check(lambda b, x: b.multiply(x, x), ONES.astype(kind)) is None


@pytest.mark.parametrize("rounding", ["off", "on"])
@pytest.mark.parametrize("nan", [False, True])
def test_halves_overflow_whatever_becomes_of_them(rounding: str, nan: bool) -> None:
    x = with_values({(0, 0): 70000, (4, 36): -1e30, (1, 1): INF, (2, 2): NAN})
    behaviour = FloatingPoint(rounding, nan, frozenset({"inv", "oflo"}))  # type: ignore[arg-type]
    for program in (lambda b, x: b.convert(x, "f16"), lambda b, x: b.convert(b.add(b.convert(x, "f16"), x2(b)), "f32")):
        error = raised(module_of(program, [x]), [x], behaviour)
        assert error is not None and (error.exception, error.opcode, error.elements) == ("oflo", "convert", 2)
    ordinary = module_of(lambda b, x: b.convert(x, "f16"), [ONES])
    assert raised(ordinary, [ONES * np.float32(1.0001)], behaviour) is None


def x2(b: Builder) -> Instruction:
    return b.splat(2.0, (5, 37), "f16")


def big(shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, 3e38, np.float32)


SUMS = [((5, 37), (1,)), ((5, 37), (0,)), ((5, 37), (0, 1)), ((4000, 70), (0,)), ((3, 90000), (1,)), ((300000,), (0,))]


@pytest.mark.parametrize(("shape", "dimensions"), SUMS, ids=str)
def test_sums(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    def program(b: Builder, x: Instruction) -> Instruction:
        return b.reduce(x, b.constant(0.0), dimensions)

    error = raised(module_of(program, [big(shape)]), [big(shape)])
    assert error is not None and (error.exception, error.opcode) == ("oflo", "reduce")
    ordinary, infinite, both = (np.ones(shape, np.float32) for _ in range(3))
    infinite.flat[7] = INF
    both.flat[7] = both.flat[8 if dimensions[-1] == len(shape) - 1 else 7 + shape[-1]] = INF
    both.flat[7] = -INF
    assert raised(module_of(program, [ordinary]), [ordinary]) is None
    assert raised(module_of(program, [infinite]), [infinite]) is None
    error = raised(module_of(program, [both]), [both])
    assert error is not None and error.exception == "inv"


def test_maxima_of_infinities_are_none() -> None:
    def program(b: Builder, x: Instruction) -> Instruction:
        return b.reduce(x, b.constant(-INF), (1,), "maximum")

    assert check(program, with_values({(0, 0): INF})) is None


PRODUCTS = {
    "oflo": (big((5, 37)), 40),
    "inv": (with_values({(0, 0): INF, (0, 1): -INF}), 8),
    "infinite": (with_values({(0, 0): INF}), 0),
    "nan": (with_values({(0, 0): NAN, (1, 1): INF, (1, 2): -INF}), 0),
    "ordinary": (ONES, 0),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("columns", [8, 600])
def test_products(name: str, columns: int) -> None:
    x, elements = PRODUCTS[name]
    error = check(lambda b, x, y: b.dot(x, y), x, np.ones((37, columns), np.float32))
    if elements:
        assert error is not None
        assert (error.exception, error.opcode, error.elements) == (name, "dot", elements // 8 * columns)


def test_windows() -> None:
    window = (WindowDimension(2), WindowDimension(3))
    error = check(lambda b, x: b.reduce_window(x, b.constant(0.0), window), big((5, 37)))
    assert error is not None and error.exception == "oflo"


def test_random_programs() -> None:
    """The engine raises if and only if a definition does, and then one of the definitions' exceptions."""
    generator = np.random.default_rng(3)
    special = np.array([0, -0.0, 1, -1, 2, INF, -INF, NAN, 3e38, -3e38, 1e-20, 0.5], np.float32)
    outcomes = []
    for _ in sample(range(25), 10):
        weights = np.where(np.isin(np.arange(12), generator.choice(12, 3)), 0.004, 0) + (np.abs(special - 1.25) < 1)
        shape = (int(generator.integers(1, 6)), int(generator.integers(1, 50)))
        arguments = [generator.choice(special, shape, p=weights / weights.sum()) for _ in range(3)]
        seed = int(generator.integers(1 << 30))

        def program(b: Builder, *values: Instruction, seed: int = seed) -> Instruction:
            choose = np.random.default_rng(seed)
            made = list(values)
            for _ in range(8):
                opcode = str(choose.choice(["add", "subtract", "multiply", "divide", "maximum", "log", "rsqrt", "abs"]))
                one, other = (made[int(k)] for k in choose.integers(0, len(made), 2))
                operands = (one,) if opcode in ("log", "rsqrt", "abs") else (one, other)
                made.append(b.elementwise(opcode, *operands))
            return b.add(made[-1], made[-2])

        outcomes.append(check(program, *arguments) is not None)
    assert {True, False} == set(outcomes)


def training(size: int = 4000) -> Module:
    """w becomes w * feed / (feed - 3), and a counter counts the steps."""
    b = Builder("training")
    feed, w, count = b.parameter("f32"), b.parameter("f32", (size,)), b.parameter("s32")
    spread = b.broadcast(b.divide(feed, b.subtract(feed, b.constant(3.0))), (size,), ())
    return b.module(b.tuple(b.multiply(w, spread), b.add(count, b.constant(1, "s32")), feed), {1: 0, 2: 1})


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_step_is_named_and_variables_are_as_before(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    executable = compile_module(
        training(), ["feed", "variable", "variable"], {}, floating_point=FloatingPoint(exceptions=frozenset({"div0"}))
    )
    held = buffers([np.linspace(1, 2, 4000, dtype=np.float32), np.asarray(np.int32(7))])
    fine = [RowFeed(np.array([5, 6, 7], np.float32))]
    executable.run(3, fine, held)
    before = [buffer.read() for buffer in held]
    assert before[1] == 10
    with pytest.raises(FloatingPointException, match="step 3 of 40") as caught:
        executable.run(40, [RowFeed(np.array([5, 6, 3, *[4] * 37], np.float32))], held)
    assert caught.value.step == 2
    for buffer, value in zip(held, before, strict=True):
        np.testing.assert_array_equal(buffer.read(), value)
    executable.run(3, fine, held)
    assert held[1].read() == 13


def test_definitions_alone_raise_the_same() -> None:
    executable = EvaluatedExecutable(training(8), ["feed", "variable", "variable"], {}, ALL_EXCEPTIONS)
    held = buffers([np.ones(8, np.float32), np.asarray(np.int32(0))])
    with pytest.raises(FloatingPointException, match="step 2 of 2") as caught:
        executable.run(2, [RowFeed(np.array([5, 3], np.float32))], held)
    assert (caught.value.exception, caught.value.opcode) == ("div0", "divide")
    assert held[1].read() == 0 and (held[0].read() == 1).all()


def test_in_an_iteration_of_a_loop() -> None:
    def program(b: Builder, x: Instruction) -> Instruction:
        def body(inside: Builder, state: list[Instruction]) -> list[Instruction]:
            return [inside.multiply(state[0], state[0])]

        return loop(b, 9, [x], body)[0]

    module = module_of(program, [ONES])
    assert raised(module, [ONES]) is None
    error = raised(module, [with_values({(2, 2): 10, (4, 36): -10})])
    assert error is not None and (error.exception, error.opcode, error.elements) == ("oflo", "multiply", 2)


def test_programs_without_floats_have_nothing_to_find() -> None:
    arguments = [np.arange(6, dtype=np.int32)]
    assert raised(module_of(lambda b, x: b.add(x, x), arguments), arguments) is None


def test_definition_of_a_single_operation() -> None:
    b = Builder("one")
    x = b.parameter("f32", (4,))
    quotient = b.divide(x, x)
    array = np.array([0, 1, INF, NAN], np.float32)
    with np.errstate(all="ignore"):
        assert exceptions_of(quotient, [array, array], array / array) == {"inv": 2}


def test_a_chip_has_the_program_without_checks() -> None:
    """A chip detects exceptions in its arithmetic; passes of the host that would hide exceptions do not run."""
    module, seen = adam_step(), list[Any]()
    roles = ["variable"] * len(module.entry.parameters)
    plain, detecting = (build_program(module, roles, {}, floating_point=each) for each in (IEEE, ALL_EXCEPTIONS))
    compile_module(module, roles, {}, floating_point=ALL_EXCEPTIONS, inspect=seen.append)
    sets = [[(each.name, type(each.work), each.units) for each in p.compute_sets] for p in (plain, detecting, *seen)]
    assert sets[0] == sets[1] == sets[2]
    running = run_passes(detecting, passes_for(detecting))
    assert running.exceptions is not None and not is_summed_where_read(running)
    assert is_summed_where_read(run_passes(plain, passes_for(plain)))
